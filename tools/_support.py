"""What the set-up and the builder of mmcv share: long commands, locks, errors that name a cure.

Standard library only: this runs before anything is installed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

MISLEADING = ('VIRTUAL_ENV', 'PIP_TARGET', 'PIP_PREFIX', 'PIP_ROOT', 'PIP_REQUIRE_VIRTUALENV')

NO_PKG_RESOURCES = (
    'This setuptools has no pkg_resources, which mmcv, mmengine and mim import: '
    'pip install "setuptools>=77,<82".'
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
    (
        r'NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|name resolution'
        r'|CERTIFICATE_VERIFY_FAILED|from versions: none',
        'The package index cannot be reached, or does not have what is wanted: check the '
        'network, the proxy and the PIP_* settings, then run again.',
    ),
    (
        r'Killed signal terminated program cc1plus|out of memory|std::bad_alloc',
        'The compiler ran out of memory: build with fewer jobs at a time (--jobs 1, or '
        'make setup JOBS=1).',
    ),
    (
        r"No module named 'mmcv\._ext'",
        'This mmcv has no compiled ops: build one that has with tools/build_mmcv.py and '
        'install that wheel.',
    ),
)


class UserError(Exception):
    """Something that the user can cure; the message says how."""


@contextlib.contextmanager
def user_errors(program: str) -> Iterator[None]:
    """End the program with one sentence, not a traceback, where the user can act."""
    try:
        yield
    except UserError as error:
        sys.exit(f'{program}: {error}')
    except KeyboardInterrupt:
        sys.exit(f'{program}: interrupted; run it again to finish.')


def clean_environment() -> dict[str, str]:
    """The environment without what would send packages, or Python itself, somewhere else.

    Mirrors, certificates and all other settings of pip stay.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in MISLEADING and not name.startswith('PYTHON')
    }
    return kept | {'PIP_USER': '0', 'PIP_NO_INPUT': '1', 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}


def check_disk(folder: Path, gigabytes: float) -> None:
    free = free_gigabytes(folder)
    if free < gigabytes:
        raise UserError(
            f'{folder} has {free:.1f} GB free and {gigabytes:.1f} GB are needed: free some '
            'space and run again.'
        )


def free_gigabytes(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 1e9


@contextlib.contextmanager
def lock(path: Path, message: str) -> Iterator[int]:
    """Hold a file lock, given free by the system when its last holder ends, however it ends.

    A child process that inherits the yielded descriptor is a holder too.
    """
    with open(path, 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(message, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def show_status(text: str) -> None:
    """Rewrite the last line of a terminal; elsewhere do nothing."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 4
        print(f'\r\033[K  {text.strip()[:width]}' if text else '\r\033[K', end='', flush=True)


def run_logged(
    command: list[str],
    log: Path,
    environment: dict[str, str],
    report: Callable[[str], None] = show_status,
    inherit: tuple[int, ...] = (),
) -> None:
    """Run a command with its output in ``log``, and explain it if it fails.

    Args:
        command: Program and arguments.
        log: File for all that the command prints.
        environment: Environment of the command.
        report: Called with each line of output.
        inherit: Descriptors that the command keeps open.
    """
    with (
        open(log, 'w') as file,
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors='replace',
            pass_fds=inherit,
            start_new_session=True,
        ) as process,
        _ending_with_us(process),
    ):
        for line in process.stdout:
            file.write(line)
            report(line)
    show_status('')
    if process.returncode:
        raise UserError(explain(log.read_text(), log))


@contextlib.contextmanager
def _ending_with_us(process: subprocess.Popen) -> Iterator[None]:
    """Hand on Ctrl-C, or whatever else ends us, to all that a process has started."""
    try:
        yield
    except BaseException:
        for ending in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, ending)
                process.wait(timeout=10)
        raise


def explain(output: str, log: Path) -> str:
    """Say what went wrong in a sentence where that is known, else show the end of the output."""
    for pattern, cure in CURES:
        if re.search(pattern, output):
            return f'{cure} (The whole output: {log})'
    last_lines = '\n'.join(output.splitlines()[-20:])
    return f'a command failed; this is the end of {log}:\n{last_lines}'
