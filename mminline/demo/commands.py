"""Long commands: output in a log, Ctrl-C handed on, errors that name a cure."""

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

CURES = (
    (
        r'No space left on device|Disk quota exceeded',
        'The disk is full: free some space and run again.',
    ),
    (
        r"No module named '?pkg_resources",
        'This setuptools has no pkg_resources, which mmcv, mmengine and mim import: '
        'pip install "setuptools>=77,<82".',
    ),
    (
        r"No module named 'mmcv\._ext'",
        'This mmcv has no compiled ops: install one that has, as make setup does.',
    ),
)


class DemoError(Exception):
    """Something that the user can cure; the message says how."""


def clean_environment() -> dict[str, str]:
    """Copy the environment without what would make Python find other packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != 'VIRTUAL_ENV' and not name.startswith('PYTHON')
    }


@contextlib.contextmanager
def lock(path: Path, message: str) -> Iterator[None]:
    """Hold a file lock, which the system frees however its holder ends; print if it waits."""
    with open(path, 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(message, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def show_status(text: str) -> None:
    """Rewrite the last line of a terminal; elsewhere do nothing."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 4
        print(f'\r\033[K  {text.strip()[:width]}' if text else '\r\033[K', end='', flush=True)


def run_logged(
    command: list[str], log: Path, environment: dict[str, str], report: Callable[[str], None]
) -> None:
    """Run a command with its output in ``log``, and explain it if it fails.

    Args:
        command: Program and arguments.
        log: File for all that the command prints.
        environment: Environment of the command.
        report: Called with each line of output.
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
            start_new_session=True,
        ) as process,
        _ending_with_us(process),
    ):
        for line in process.stdout:
            file.write(line)
            report(line)
    show_status('')
    if process.returncode:
        raise DemoError(explain(log.read_text(), log))


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
