"""Long commands of the demo: Ctrl-C, and errors that name a cure."""

import os
import signal
import sys
import time

import pytest

from mminline.demo.commands import DemoError, clean_environment, run_logged


def test_an_interruption_ends_all_that_was_started(tmp_path):
    child = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'
    code = f'import subprocess, sys; subprocess.run([sys.executable, "-c", {child!r}])'
    started = []

    def interrupt(line: str) -> None:
        started.append(int(line))
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_logged([sys.executable, '-c', code], tmp_path / 'log', dict(os.environ), interrupt)

    assert time.monotonic() - begin < 20
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # whoever adopts orphans may take a moment to bury this one
            os.kill(started[0], signal.SIG_DFL)
            time.sleep(0.05)


@pytest.mark.parametrize(
    ('output', 'message'),
    [
        ('OSError: [Errno 28] No space left on device', 'The disk is full: .*whole output: .*log'),
        ("ModuleNotFoundError: No module named 'pkg_resources'", 'setuptools>=77,<82'),
        ("ModuleNotFoundError: No module named 'mmcv._ext'", 'no compiled ops'),
        ('KeyError: 7', '(?s)this is the end of .*log:.*KeyError: 7'),
    ],
)
def test_a_command_that_fails_is_explained(tmp_path, output, message):
    code = f'import sys; print({output!r}); sys.exit(3)'
    lines = []

    with pytest.raises(DemoError, match=message):
        run_logged([sys.executable, '-c', code], tmp_path / 'log', dict(os.environ), lines.append)

    assert lines == [f'{output}\n']
    assert (tmp_path / 'log').read_text() == f'{output}\n'


def test_programs_do_not_see_what_would_lead_them_to_other_packages(monkeypatch):
    monkeypatch.setenv('PYTHONPATH', '/elsewhere')
    monkeypatch.setenv('VIRTUAL_ENV', '/elsewhere')
    monkeypatch.setenv('TORCH_HOME', '/cache')

    environment = clean_environment()

    assert '/elsewhere' not in environment.values()
    assert environment['TORCH_HOME'] == '/cache'
