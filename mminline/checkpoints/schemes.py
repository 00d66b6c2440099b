"""Addresses of checkpoints, each read without running anything that a file asks for.

mmengine's own loaders run code: 0.10 that of web addresses, onedl-mmengine and 0.11 that of local
files too. Importing this module puts these in their place for all that mmengine loads:
``load_from``, ``resume``, any ``Pretrained`` initialisation, inferencers.
"""

import os
import urllib.parse
from pathlib import Path
from tempfile import TemporaryDirectory

import mmengine.runner.checkpoint
import torch
from mmengine.fileio import get_file_backend
from mmengine.runner import (
    CheckpointLoader,
    get_deprecated_model_names,
    get_external_models,
    get_mmcls_models,
    get_torchvision_models,
)

from .download import SCHEME, cache_folder, download
from .reader import read_file

WEB = ('http://', 'https://')
Device = str | torch.device | None


def read_checkpoint(source: str | Path, map_location: Device = 'cpu') -> dict:
    """Read a checkpoint from a file, a web address, ``inline://`` or a scheme of mmengine.

    Files and web addresses may hold objects beside the weights, as published ones do; these are
    left out.

    Args:
        source: Path or address.
        map_location: Where tensors go, as in ``torch.load``.
    """
    source = os.fspath(source)
    if source.startswith(WEB):
        return read_file(download(source), map_location)
    if '://' in source:
        return CheckpointLoader.load_checkpoint(source, map_location)
    return read_file(source, map_location)


# mmengine logs which loader it uses by what follows load_from_ in its name.
@CheckpointLoader.register_scheme(prefixes=SCHEME, force=True)
def load_from_inline(filename: str, map_location: Device = None) -> dict:
    """Load published weights, ``inline://pvt-tiny`` to ``inline://swin-base``."""
    return read_file(download(filename), map_location)


@CheckpointLoader.register_scheme(prefixes='', force=True)
def load_from_local(filename: str, map_location: Device = None) -> dict:
    """Load a file."""
    return read_file(filename, map_location, strict=True)


@CheckpointLoader.register_scheme(prefixes=WEB, force=True)
def load_from_http(
    filename: str,
    map_location: Device = None,
    model_dir: str | None = None,
    progress: bool = True,  # as mmengine's has it; the progress is shown in any case
) -> dict:
    """Load from the web, once for all processes of a machine; ``model_dir`` keeps the file."""
    folder = Path(model_dir) if model_dir else cache_folder()
    path = folder / Path(urllib.parse.urlparse(filename).path).name
    if not path.is_file():  # torch.hub would have kept it there, or a user without a network
        path = download(filename, folder)
    return read_file(path, map_location, strict=True, source=f'{filename} (kept as {path})')


@CheckpointLoader.register_scheme(prefixes=('torchvision://', 'modelzoo://'), force=True)
def load_from_torchvision(filename: str, map_location: Device = None) -> dict:
    """Load weights of torchvision by the name of a model."""
    return load_from_http(get_torchvision_models()[_model(filename)], map_location)


@CheckpointLoader.register_scheme(prefixes=('open-mmlab://', 'openmmlab://'), force=True)
def load_from_openmmlab(filename: str, map_location: Device = None) -> dict:
    """Load weights that mmengine or the user's ``open_mmlab.json`` lists."""
    name = _model(filename)
    place = get_external_models()[get_deprecated_model_names().get(name, name)]
    if place.startswith(WEB):
        return load_from_http(place, map_location)
    home = mmengine.runner.checkpoint._get_mmengine_home()
    return load_from_local(os.path.join(home, place), map_location)


@CheckpointLoader.register_scheme(prefixes='mmcls://', force=True)
def load_from_mmcls(filename: str, map_location: Device = None) -> dict:
    """Load the backbone of a classifier."""
    checkpoint = load_from_http(get_mmcls_models()[_model(filename)], map_location)
    weights = checkpoint.get('state_dict', checkpoint)
    prefix = 'backbone.'
    return {
        'state_dict': {
            key.removeprefix(prefix): value
            for key, value in weights.items()
            if key.startswith(prefix)
        }
    }


@CheckpointLoader.register_scheme(prefixes=[r'(\S+\:)?s3://', r'(\S+\:)?petrel://'], force=True)
def load_from_ceph(filename: str, map_location: Device = None, backend: str = 'petrel') -> dict:
    """Load from object storage, by the client that mmengine uses."""
    client = get_file_backend(filename, backend_args={'backend': backend})
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'checkpoint.pth'
        path.write_bytes(client.get(filename))
        return read_file(path, map_location, strict=True, source=filename)


@CheckpointLoader.register_scheme(prefixes='pavi://', force=True)
def load_from_pavi(filename: str, map_location: Device = None) -> dict:
    """Refuse an address that only mmengine's own loader can read, which would run code."""
    raise ValueError(f'{filename} cannot be read safely: download the file and name its path')


def _model(address: str) -> str:
    return address.partition('://')[2]


# For code that calls mmengine's functions themselves.
for _loader in (
    load_from_local,
    load_from_http,
    load_from_torchvision,
    load_from_openmmlab,
    load_from_mmcls,
    load_from_ceph,
    load_from_pavi,
):
    setattr(mmengine.runner.checkpoint, _loader.__name__, _loader)
