"""Files that are written as a whole or not at all."""

import contextlib
import os
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
