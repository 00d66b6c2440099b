"""Read checkpoint files without running anything that they name."""

import contextlib
import zipfile
from collections import OrderedDict
from pathlib import Path

import torch
from mmengine.logging import print_log

from .convert import listed


class Blank:
    """Stands in for a class or function that a checkpoint names beside its weights.

    Training scripts store their settings, often as objects of a package that is not installed
    here. Whatever is made of those gives an empty dict instead: the one thing that torch's
    restricted unpickler lets a file fill.
    """

    def __new__(cls, *args, **kwargs) -> OrderedDict:
        return OrderedDict()


def read_file(path: str | Path, map_location: str | torch.device | None = 'cpu') -> dict:
    """Load a file of ``torch.save``: tensors and plain values, blanks for all else.

    Args:
        path: The file.
        map_location: Where tensors go, as in ``torch.load``.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'a checkpoint has to be a file, there is none at {path}')
    strange = []
    try:
        strange = _foreign_names(path)
        with _blanks(strange):
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # a damaged file can raise anything, OSError too
        content = f'one with {listed(strange)}, refused' if strange else describe(path)
        raise ValueError(
            f'a checkpoint has to be a whole file of torch.save, got {content}: {path}'
        ) from error
    if strange:
        print_log(f'{path.name}: left out objects of {listed(strange)}', logger='current')
    return checkpoint


def _foreign_names(path: Path) -> list[str]:
    """Names in a checkpoint that torch does not take for parts of weights."""
    # Files from before torch 1.6 are no archives; torch before 2.6 cannot look into them.
    if not zipfile.is_zipfile(path) or torch.__version__ < (2, 6):
        return []
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))


def _blanks(names: list[str]) -> contextlib.AbstractContextManager:
    if not names:
        return contextlib.nullcontext()
    return torch.serialization.safe_globals([(Blank, name) for name in names])


def describe(path: Path) -> str:
    """Say what a file that is no checkpoint seems to be."""
    with open(path, 'rb') as file:
        head = file.read(256).lstrip().lower()
    size = f'{path.stat().st_size:,} bytes'
    if not head:
        return 'an empty file'
    if head.startswith((b'<!doctype', b'<html', b'<head')):
        return f'a web page ({size})'
    if zipfile.is_zipfile(path):
        return f'an archive of something else, or of objects that take torch 2.6 to skip ({size})'
    if head.startswith(b'pk'):
        return f'an archive that is cut off ({size})'
    if head.startswith(b'\x80'):
        return f'a pickle that is cut off or holds more than tensors ({size})'
    return f'{size} of something else'
