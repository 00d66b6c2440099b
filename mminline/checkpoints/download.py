"""Published weights as ``inline://pvt-tiny``: downloaded once, checked, kept.

They are kept in torch's cache as ``inline-pvt-tiny.pth`` and so on, under ``TORCH_HOME``. With
``MMINLINE_WEIGHTS_URL`` set to the address of a folder that has files of these names, they come
from there instead of the published links.
"""

import contextlib
import hashlib
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from mmengine.logging import print_log
from torch import Tensor
from torch.hub import tqdm

from .convert import find_backbone, unwrap
from .reader import UnsafeCheckpointError, describe, read_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SCHEME = 'inline://'
MIRROR = 'MMINLINE_WEIGHTS_URL'
ATTEMPTS = 3
SILENCE = 30  # seconds without a byte after which a server counts as gone
BROKEN = (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


class Published(NamedTuple):
    """Address of a published model, and the number of parameters of its stages."""

    url: str
    num_parameters: int


def _share(code: str) -> str:
    return f'https://cloud.tsinghua.edu.cn/f/{code}/?dl=1'


PUBLISHED = {
    'pvt-tiny': Published(_share('90ac52b1555b401eb5e6'), 11_519_232),
    'pvt-small': Published(_share('1ab953b2479d433080a3'), 21_043_136),
    'pvt-medium': Published(_share('a72aec31e6084bc0a280'), 37_105_856),
    'pvt-large': Published(_share('efd91318ba964f01b288'), 50_641_280),
    'swin-tiny': Published(_share('32810869fcc34410966b'), 28_453_008),
    'swin-small': Published(_share('e9657fd247c04c7cb1a1'), 49_022_760),
    'swin-base': Published(_share('bf23564bb64c420aafe1'), 87_323_072),
    'deit-tiny': Published(_share('1d6b8191ad6d4114b291'), 6_284_352),
    'deit-small': Published(_share('2f3898b07e9247f3beb3'), 16_413_120),
    'deit-base': Published(_share('10bdd726d4b0435eb34e'), 23_411_328),
}


def published_name(weights: Mapping[str, Tensor]) -> str | None:
    """Name of the published model that has stages of this size; weights are named as ours."""
    size = sum(value.numel() for key, value in weights.items() if key.startswith('stages.'))
    return next((name for name, model in PUBLISHED.items() if model.num_parameters == size), None)


def download(source: str, folder: str | Path | None = None) -> Path:
    """Download what an ``inline://`` name or a web address stands for, unless it is there.

    Args:
        source: Name or address; the published links stand for the names.
        folder: Where to keep the file; None for torch's cache.
    """
    folder = Path(folder) if folder else cache_folder()
    links = {model.url: name for name, model in PUBLISHED.items()}
    if source not in links and not source.startswith(SCHEME):
        # Many addresses end alike, in epoch_12.pth for one.
        code = hashlib.sha256(source.encode()).hexdigest()[:8]
        name = Path(urllib.parse.urlparse(source).path).name
        return fetch(source, folder / f'{code}-{name}')
    name = links.get(source, source.removeprefix(SCHEME))
    if name not in PUBLISHED:
        choices = ', '.join(SCHEME + choice for choice in PUBLISHED)
        raise ValueError(f'published weights have to be one of {choices}, got {source}')
    file_name = f'inline-{name}.pth'
    mirror = os.environ.get(MIRROR)
    url = f'{mirror.rstrip("/")}/{file_name}' if mirror else PUBLISHED[name].url
    return fetch(url, folder / file_name, name)


def cache_folder() -> Path:
    """Return the folder in which torch keeps downloaded weights."""
    return Path(torch.hub.get_dir()) / 'checkpoints'


def fetch(url: str, path: Path, model: str | None = None) -> Path:
    """Download a checkpoint once, however many processes ask for it.

    A file takes its name only when it is whole and what it should be.

    Args:
        url: Address of the checkpoint.
        path: Where to keep it.
        model: Published model that it has to hold; None for any content.
    """
    if path.is_file():  # also in a folder that nobody may write to
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path.with_name(f'{path.name}.lock')):
        if path.is_file():  # another process was faster
            return path
        partial = path.with_name(f'{path.name}.{uuid.uuid4().hex}.partial')
        print_log(f'Downloads {url} to {path}', logger='current')
        try:
            _transfer(url, partial)
            if wrong := _wrong_content(partial, model, url):
                raise ConnectionError(f'it sent {wrong}')
            os.replace(partial, path)
        except (urllib.error.URLError, *BROKEN) as error:
            raise ConnectionError(
                f'no checkpoint from {url}: {error}. To go on, download it with a browser, on any '
                f'machine, and put it as {path.name} into {path.parent}'
            ) from error
        finally:
            partial.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep other processes out; without locks they download side by side, which only costs."""
    with open(path, 'w') as file:
        if fcntl:
            with contextlib.suppress(OSError):  # a network file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _transfer(url: str, path: Path) -> None:
    """Download with a progress bar; begin again when the line breaks."""
    request = urllib.request.Request(url, headers={'User-Agent': 'mminline'})
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request, timeout=SILENCE) as response:
                _save(response, path)
            return
        except BROKEN:
            if attempt == ATTEMPTS - 1:
                raise


def _save(response: http.client.HTTPResponse, path: Path) -> None:
    total = int(response.headers.get('Content-Length', 0))
    is_silent = not sys.stderr.isatty()
    with (
        open(path, 'wb') as file,
        tqdm(total=total or None, unit='B', unit_scale=True, disable=is_silent) as bar,
    ):
        while chunk := response.read(1 << 20):
            file.write(chunk)
            bar.update(len(chunk))
        size = file.tell()
    if size < total:
        raise ConnectionError(f'it broke off after {size:,} of {total:,} bytes')


def _wrong_content(path: Path, model: str | None, url: str) -> str | None:
    """Say what a file is if not the checkpoint it should be."""
    try:
        checkpoint = read_file(path, source=url)
        if model is None:
            return None
        weights = find_backbone(unwrap(checkpoint)).converted()
    except UnsafeCheckpointError:
        raise
    except ValueError:
        return describe(path)
    found = published_name(weights)
    return None if found == model else f'the weights of {found or "another model"}, not {model}'
