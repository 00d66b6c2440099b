"""Read checkpoint files without running anything that they name."""

import re
import zipfile
from collections import OrderedDict
from pathlib import Path
from pickle import UnpicklingError

import torch
from mmengine.logging import print_log

from ..compat import allow_mmengine_checkpoints
from .convert import listed


class UnsafeCheckpointError(ValueError):
    """A checkpoint asks for more than weights and plain values.

    Args:
        source: File or address.
        reason: What it asks for.
    """

    def __init__(self, source: str | Path, reason: str):
        super().__init__(
            f'{source} is refused, and nothing in it was run: {reason}. A checkpoint has to hold '
            'weights and plain values: train again, or ask for a file that does. Only if you '
            'trust its author, convert it in a script of your own, on a machine set apart: '
            'torch.load(FILE, weights_only=False) runs whatever the file asks for.'
        )


class Blank(type):
    """Stands in for a class that a checkpoint names beside its weights.

    Training scripts store their settings, often as objects of a package that is not installed
    here. Each gives an empty dict instead: the one thing that torch's restricted unpickler lets
    a file fill. What a file calls is no object, and refused.
    """

    def __new__(cls, name: str) -> 'Blank':
        return super().__new__(cls, name, (), {'__new__': lambda *args, **kwargs: OrderedDict()})

    def __init__(cls, name: str):
        super().__init__(name, (), {})

    def __call__(cls, *args, **kwargs) -> OrderedDict:
        if cls.__name__.startswith('pathlib.'):  # common in settings, and pickled as calls
            return OrderedDict()
        raise UnpicklingError(f'Trying to call GLOBAL {cls.__name__}')


def read_file(
    path: str | Path,
    map_location: str | torch.device | None = 'cpu',
    strict: bool = False,
    source: str | None = None,
) -> dict:
    """Load a file of ``torch.save``: tensors and plain values.

    Args:
        path: The file.
        map_location: Where tensors go, as in ``torch.load``.
        strict: Whether to refuse objects of unknown classes; otherwise blanks stand for them.
        source: Name of the file in messages, if not its path.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'a checkpoint has to be a file, there is none at {path}')
    if _is_safetensors(path):
        raise ValueError(
            f'a checkpoint has to be a whole file of torch.save, got {describe(path)}: '
            f'{source or path}'
        )
    allow_mmengine_checkpoints()
    strange = []
    try:
        strange = [] if strict else _foreign_names(path)
        with torch.serialization.safe_globals([(Blank(name), name) for name in strange]):
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # a damaged file can raise anything, OSError too
        if 'map_location' in str(error):  # a device that is not here: torch says what to do
            raise
        if reason := _refusal(error, path):
            # torch's own message, which advises to load it all the same, is left out.
            raise UnsafeCheckpointError(source or path, reason) from None
        content = f'one with {listed(strange)}, refused' if strange else describe(path)
        raise ValueError(
            f'a checkpoint has to be a whole file of torch.save, got {content}: {source or path}'
        ) from error
    if strange:
        print_log(f'{path.name}: left out objects of {listed(strange)}', logger='current')
    return checkpoint


def _foreign_names(path: Path) -> list[str]:
    """List names in a checkpoint that torch does not take for parts of weights."""
    if not zipfile.is_zipfile(path):  # files from before torch 1.6 are no archives
        return []
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))


def _refusal(error: Exception, path: Path) -> str | None:
    """Say what a file asked for, if that is why torch did not read it."""
    text = str(error.__context__ or error)  # torch wraps the reason into advice
    if name := re.search(r'GLOBAL (\S+)', text):
        return f'it asks for {name[1]}'
    is_pickle = isinstance(error, UnpicklingError) and _head(path).startswith((b'pk', b'\x80'))
    if is_pickle or text.startswith('Cannot use'):
        return f'it holds more than weights ({text.split(". ")[0]})'
    return None


def describe(path: Path) -> str:
    """Say what a file that is no checkpoint seems to be."""
    head = _head(path)
    size = f'{path.stat().st_size:,} bytes'
    if not head:
        return 'an empty file'
    if _is_safetensors(path):
        return f'one of safetensors ({size}; safetensors.torch.load_file reads it)'
    if head.startswith((b'<!doctype', b'<html', b'<head')):
        return f'a web page ({size})'
    if zipfile.is_zipfile(path):
        return f'an archive of something else, of which nothing was run ({size})'
    if head.startswith(b'pk'):
        return f'an archive that is cut off ({size})'
    if head.startswith(b'\x80'):
        return f'a pickle that is cut off ({size})'
    return f'{size} of something else'


def _is_safetensors(path: Path) -> bool:
    """Whether a file begins with the length of a JSON header, and the header."""
    with open(path, 'rb') as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], 'little')
    return start[8:] == b'{' and 0 < length < path.stat().st_size


def _head(path: Path) -> bytes:
    with open(path, 'rb') as file:
        return file.read(256).lstrip().lower()
