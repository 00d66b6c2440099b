"""Targets of the Makefile, run with programs in place of Python that note their arguments."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks import STACKS

ROOT = Path(__file__).parents[2]
TARGETS = (
    'setup',
    'develop',
    'demo',
    'demo-all',
    'explore',
    'test',
    'test-fast',
    'test-stack',
    'test-stack-fast',
    'test-browser',
    'lint',
    'bench',
    'docs',
    'clean',
)
NOTE_CALL = """#!{python}
import json, os, sys
with open({file!r}, 'w') as file:
    json.dump(sys.argv[1:], file)
sys.exit(int(os.environ.get({name!r}, 0)))
"""


def run_make(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Run make as if no other make were around it."""
    around = ('MAKEFLAGS', 'MAKEOVERRIDES', 'MFLAGS')
    around += ('STACK', 'TESTS', 'WORKERS', 'TORCH_INDEX', 'JOBS')
    alone = {name: value for name, value in os.environ.items() if name not in around}
    command = ['make', '-C', folder, f'PYTHON={sys.executable}', *arguments]
    return subprocess.run(command, env=alone | variables, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path):
    """A folder with the Makefile, whose set-up and Python only note their arguments."""
    shutil.copy2(ROOT / 'Makefile', tmp_path)
    pythons = [f'{stack.folder}/bin/python' for stack in STACKS.values()]
    for path in ('environment/install.py', *pythons):
        program = tmp_path / path
        program.parent.mkdir(parents=True)
        file = str(tmp_path / f'{program.stem}.json')
        name = f'STATUS_OF_{program.stem.upper()}'
        program.write_text(NOTE_CALL.format(python=sys.executable, file=file, name=name))
        program.chmod(0o755)
    return tmp_path


def arguments(project: Path, program: str) -> list[str]:
    return json.loads((project / f'{program}.json').read_text())


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        (['setup'], ['openmmlab']),
        (['setup', 'STACK=onedl'], ['onedl']),
        (['setup', 'TORCH_INDEX=here'], ['openmmlab', '--torch-index', 'here']),
        (['test', 'STACK=onedl', 'JOBS=2'], ['onedl', '--jobs', '2']),
        (['develop'], ['openmmlab', '--editable']),
        (['lint', 'JOBS=1'], ['openmmlab', '--jobs', '1']),
    ],
)
def test_variables_reach_the_set_up(project, words, expected):
    assert run_make(project, *words).returncode == 0
    assert arguments(project, 'install') == ['--stack', *expected]


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        (['test'], ['tests']),
        (['test', "TESTS=tests/setup -k 'a or b'"], ['tests/setup', '-k', 'a or b']),
        (['test-fast'], ['-m', 'not slow', 'tests']),
        (['test-fast', 'TESTS=tests/setup -x'], ['-m', 'not slow', 'tests/setup', '-x']),
    ],
)
def test_pytest_gets_what_was_asked_for_isolated_from_the_sources(project, words, expected):
    assert run_make(project, *words).returncode == 0
    workers = ['--dist', 'loadfile', '--tx', f'2*popen//python={project}/.venv/bin/python -I']
    assert arguments(project, 'python') == ['-I', '-m', 'pytest', *workers, *expected]


@pytest.mark.parametrize('stack', STACKS)
def test_each_stack_is_tested_in_its_environment(project, stack):
    for other in STACKS.keys() - {stack}:
        (project / STACKS[other].folder / 'bin' / 'python').unlink()
    assert run_make(project, 'test', f'STACK={stack}').returncode == 0

    python = f'{project}/{STACKS[stack].folder}/bin/python'
    assert f'2*popen//python={python} -I' in arguments(project, 'python')


def test_the_tests_of_a_stack_are_there_and_the_fast_ones_are_among_them(project):
    paths = {}
    for target in ('test-stack', 'test-stack-fast'):
        assert run_make(project, target, 'STACK=onedl').returncode == 0
        words = arguments(project, 'python')[7:]
        paths[target] = [word for word in words if word.startswith('tests')]

    assert all((ROOT / path).exists() for path in paths['test-stack'] + paths['test-stack-fast'])
    assert 'tests/configs/test_configs.py' in paths['test-stack-fast']
    assert all(path.startswith(tuple(paths['test-stack'])) for path in paths['test-stack-fast'])


@pytest.mark.parametrize('target', ['test', 'test-fast', 'test-stack', 'test-stack-fast', 'lint'])
def test_a_failure_is_the_failure_of_make(project, target):
    assert run_make(project, target, STATUS_OF_PYTHON='1').returncode != 0
    assert run_make(project, target).returncode == 0


def test_the_browser_test_says_what_it_needs_and_fails_without(project):
    programs = project / 'programs'
    programs.mkdir()
    (programs / 'make').symlink_to(shutil.which('make'))

    done = run_make(project, 'test-browser', PATH=str(programs))

    assert done.returncode != 0
    assert 'apt-get install chromium chromium-driver' in done.stdout
    assert not (project / 'python.json').exists()


def test_explore_opens_the_models_of_the_demo(project):
    assert run_make(project, 'explore', 'EXPLORE=--port 7861').returncode == 0
    program = ['-E', '-s', 'tools/explore.py', '--demo', 'work_dirs/demo', '--port', '7861']
    assert arguments(project, 'python') == program


def test_nothing_runs_after_a_set_up_that_failed(project):
    assert run_make(project, 'test', STATUS_OF_INSTALL='1').returncode != 0
    assert not (project / 'python.json').exists()


def test_clean_removes_environments_also_those_of_earlier_versions(project):
    for name in ('.venv.old', '.venv-onedl.old', '.venv-timm', 'environment/__pycache__', 'build'):
        (project / name).mkdir()
    (project / '.venv-onedl.lock').touch()
    assert run_make(project, 'clean').returncode == 0

    files = [str(path.relative_to(project)) for path in project.rglob('*')]
    assert sorted(files) == ['Makefile', 'environment', 'environment/install.py']


def test_make_alone_prints_a_line_for_each_target():
    listed = run_make(ROOT).stdout

    for target in TARGETS:
        assert f'make {target} ' in listed
    assert 'PYTHON ' in listed and 'TORCH_INDEX ' in listed
    assert all(name in listed and stack.folder in listed for name, stack in STACKS.items())
