"""Files that are written as a whole or not at all."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Write a file that gets its name when it is complete.

    If anything goes wrong before, a full disk or Ctrl-C, nothing is left of it, and an older file
    of that name stays as it was. Of several processes that write to one path each has its own
    unfinished file, and the last one to finish leaves its own, whole.

    Yields:
        Path to write to, in the same folder.
    """
    path = Path(path)
    unfinished = path.with_name(f'.{path.name}.{secrets.token_hex(8)}.part')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not by ``tempfile``: its files are for the user alone, and the result is for all who may
        # read what this user writes.
        unfinished.touch(exist_ok=False)
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        raise OSError(f'{path} cannot be written: {error.strerror or error}') from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def check_folder(folder: str | Path) -> None:
    """Raise an OSError if files cannot be made in a folder, which need not exist yet."""
    folder = Path(folder).absolute()
    try:
        existing = next(each for each in (folder, *folder.parents) if each.exists())
        # Asking for the permission would not do: a disk may be mounted for reading only.
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise OSError(f'files cannot be written to {folder}: {error.strerror or error}') from error
