"""Checkpoints that run code when they are unpickled: each then leaves a mark.

``CRAFTED`` has for each kind how to write it, and a pattern for what a refusal says it asked for.
"""

import io
import os
import pickle
import shutil
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import torch
from mmengine.logging import HistoryBuffer

NOT_RUN = r'nothing (in it )?was run'


class Call:
    """Pickles as a call of a function, or of what another call returns."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call

    def __call__(self):
        """pickle insists that the function can be called."""


def call_exec(mark: Path) -> Call:
    return Call(exec, f'open({str(mark)!r}, "w")')


def call_system(mark: Path) -> Call:
    return Call(os.system, f'touch {mark}')


def call_unknown(mark: Path) -> Call:
    return Call(shutil.copyfile, __file__, str(mark))


def call_through_getattr(mark: Path) -> Call:
    """Reach ``exec`` from a class that is allowed, by ``getattr`` alone."""
    scope = Call(getattr, Call(getattr, HistoryBuffer, '__init__'), '__globals__')
    builtins = Call(Call(getattr, scope, 'get'), '__builtins__')
    return Call(Call(Call(getattr, builtins, 'get'), 'exec'), f'open({str(mark)!r}, "w")')


def write_checkpoint(path: Path, mark: Path, call=call_exec, **options) -> None:
    """Write a checkpoint of mmengine with a call in ``meta``."""
    weights = {'linear.weight': torch.ones(1, 1), 'linear.bias': torch.zeros(1)}
    content = {'meta': {'time': 'now', 'config': call(mark)}, 'state_dict': weights}
    torch.save(content, path, **options)


def write_pickle(path: Path, mark: Path, protocol: int) -> None:
    path.write_bytes(pickle.dumps(call_exec(mark), protocol))


def write_tar(path: Path, mark: Path) -> None:
    """Write the format that torch had before version 0.2: no storages, no tensors, a pickle."""
    none = pickle.dumps(0, 2)
    parts = {
        'storages': none + pickle.dumps([], 2),
        'tensors': none,
        'pickle': pickle.dumps(call_exec(mark), 2),
    }
    with tarfile.open(path, 'w', format=tarfile.PAX_FORMAT) as tar:
        for name, body in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))


def write_zipped_file(path: Path, mark: Path) -> None:
    """Write an archive of one older file, which torch.hub unpacks and loads."""
    inner = path.with_suffix('.inner')
    write_checkpoint(inner, mark, _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(path, 'w') as archive:
        archive.write(inner, 'inner.pth')
    inner.unlink()


CRAFTED = {
    'call of the system': (partial(write_checkpoint, call=call_system), r'(posix|nt)\.system'),
    'unknown global': (partial(write_checkpoint, call=call_unknown), r'shutil\.copyfile'),
    'getattr': (partial(write_checkpoint, call=call_through_getattr), r"'__init__' of .*HistoryB"),
    'older format': (partial(write_checkpoint, _use_new_zipfile_serialization=False), 'for exec'),
    'oldest format': (write_tar, r'legacy \.tar format'),
    'pickle': (partial(write_pickle, protocol=2), 'for exec'),
    'newer pickle': (partial(write_pickle, protocol=4), 'Unsupported operand'),
    'newer pickle in a zip': (partial(write_checkpoint, pickle_protocol=4), 'Unsupported operand'),
    'file in a zip': (write_zipped_file, 'an archive of something else'),
}
