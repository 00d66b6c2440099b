"""Errors that the user can cure, each with its cure in the message.

Standard library only: this runs before anything is installed.
"""

import contextlib
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

NO_PKG_RESOURCES = (
    'This setuptools has no pkg_resources, which mmcv, mmengine and mim import: '
    'pip install "setuptools>=77,<82".'
)
INDEX_TROUBLE = (
    'The package index cannot be reached, or does not have what is wanted: check the '
    'network, the proxy and the PIP_* settings, then run again.'
)
NO_SOLUTION = (
    'pip found no versions that fit together. Either packages ask for versions of each other that '
    'exclude one another, or the package index, such as a mirror, lacks a page: then run again '
    'later, or check the PIP_* settings.'
)
CURES = (
    (
        r'No space left on device|Disk quota exceeded',
        'The disk is full: free some space and run again.',
    ),
    (r"No module named '?pkg_resources", NO_PKG_RESOURCES),
    (
        r'ensurepip is not available|No module named ensurepip',
        'This Python cannot make virtual environments: install its venv package '
        '(Debian, Ubuntu: apt install python3-venv).',
    ),
    (r'ResolutionImpossible', NO_SOLUTION),
    (
        r'NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|name resolution'
        r'|CERTIFICATE_VERIFY_FAILED|from versions: none',
        INDEX_TROUBLE,
    ),
    (
        r'Killed signal terminated program cc1plus|out of memory|std::bad_alloc',
        'The compiler ran out of memory: build with fewer jobs at a time (--jobs 1, or '
        'make setup JOBS=1).',
    ),
    (
        r"No module named 'mmcv\._ext'",
        'This mmcv has no compiled ops: build one that has with environment/build_mmcv.py and '
        'install that wheel.',
    ),
)


class UserError(Exception):
    """Something that the user can cure; the message says how."""


@contextlib.contextmanager
def user_errors(program: str) -> Iterator[None]:
    """End the program with one sentence, not a traceback, where the user can act."""
    # As Ctrl-C, so that what was started ends too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except UserError as error:
        sys.exit(f'{program}: {error}')
    except KeyboardInterrupt:
        sys.exit(f'{program}: interrupted; run it again to finish.')


def explain(output: str, log: Path) -> str:
    """Name the cure of a failed command where it is known, else show the end of its output."""
    last_lines = '\n'.join(output.splitlines()[-20:])
    for pattern, cure in CURES:
        if re.search(pattern, output):
            # Only pip knows which of the packages do not fit.
            end = f' The end of it:\n{last_lines}' if cure is NO_SOLUTION else ''
            return f'{cure} (The whole output: {log}){end}'
    return f'a command failed; this is the end of {log}:\n{last_lines}'


def check_disk(folder: Path, gigabytes: float) -> None:
    free = free_gigabytes(folder)
    if free < gigabytes:
        raise UserError(
            f'{folder} has {free:.1f} GB free and {gigabytes:.1f} GB are needed: free some '
            'space and run again.'
        )


def free_gigabytes(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 1e9
