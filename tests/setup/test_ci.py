"""``.ci/run``: what it runs on which stack, with programs in place of make and Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLASSIC, FORKS = 'make lint test', 'make test-stack-fast STACK=onedl'


@pytest.fixture
def run_ci(tmp_path):
    """Run ``.ci/run`` where the commands that hold ``failing`` do; return status and lines."""

    def run(failing: str = 'nothing', with_status: int = 3) -> tuple[int, list[str]]:
        (tmp_path / '.ci').mkdir()
        shutil.copy2(ROOT / '.ci' / 'run', tmp_path / '.ci')
        for name in ('make', '.venv/bin/python'):
            program = tmp_path / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(
                f'#!/bin/sh\necho "{program.name} $*" >&2\n'
                f'case "{program.name} $*" in *"{failing}"*) exit {with_status} ;; esac\n'
            )
            program.chmod(0o755)
        path = f'{tmp_path}{os.pathsep}{os.environ["PATH"]}'
        command = [tmp_path / '.ci' / 'run']
        done = subprocess.run(
            command, env=os.environ | {'PATH': path}, stdout=subprocess.PIPE, text=True
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_both_stacks_are_tested(run_ci):
    status, lines = run_ci()

    assert status == 0
    assert [line for line in lines if line.startswith('make')] == [CLASSIC, FORKS]
    assert any('build_mmcv.py --stack onedl --cached' in line for line in lines)


@pytest.mark.parametrize(
    ('failing', 'reason'),
    [('--cached', 'would have to be compiled'), ('index versions', 'does not find their packages')],
)
def test_forks_that_cannot_be_set_up_soon_are_left_out_with_the_reason(run_ci, failing, reason):
    status, lines = run_ci(failing)

    assert status == 0
    assert [line for line in lines if line.startswith('make')] == [CLASSIC]
    assert 'are left out' in lines[-1] and reason in lines[-1]


def test_forks_that_take_too_long_are_left_out(run_ci):
    status, lines = run_ci(FORKS, with_status=124)  # that of timeout

    assert status == 0
    assert 'are left out: they were not finished' in lines[-1]


@pytest.mark.parametrize('failing', [CLASSIC, FORKS])
def test_a_failure_on_either_stack_is_the_failure_of_the_whole(run_ci, failing):
    status, lines = run_ci(failing)

    assert status == 3
    assert lines[-1] == failing  # all that it prints is on one stream, and nothing follows
