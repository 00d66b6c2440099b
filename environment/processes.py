"""Run long commands: in a clean environment, one at a time, with a log.

Standard library only: this runs before anything is installed.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from errors import UserError, explain

MISLEADING = ('VIRTUAL_ENV', 'PIP_TARGET', 'PIP_PREFIX', 'PIP_ROOT', 'PIP_REQUIRE_VIRTUALENV')


def clean_environment() -> dict[str, str]:
    """Copy the environment without what would send packages, or Python itself, elsewhere.

    Mirrors, certificates and all other settings of pip stay.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in MISLEADING and not name.startswith('PYTHON')
    }
    return kept | {'PIP_USER': '0', 'PIP_NO_INPUT': '1', 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}


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
