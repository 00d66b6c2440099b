"""Files that are written as a whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Write a file that gets its name when it is complete.

    If anything goes wrong before, a full disk or Ctrl-C, nothing is left of it, and an older file
    of that name stays as it was.

    Yields:
        Path to write to, in the same folder.
    """
    path = Path(path)
    unfinished = path.with_name(f'.{path.name}.part')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
