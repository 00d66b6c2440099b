"""``make setup`` on machines that lack something: one sentence each, with the cure."""

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import errors
import processes
import steps
from virtual_environment import Environment

INSTALL = Path(__file__).parents[2] / 'environment' / 'install.py'


def test_too_little_disk_and_a_missing_compiler_are_said_before_any_download(monkeypatch, tmp_path):
    monkeypatch.setenv('MMINLINE_CACHE', str(tmp_path / 'cache'))
    environment, options = Environment(tmp_path / '.venv'), SimpleNamespace(stack='openmmlab')
    monkeypatch.setattr(errors, 'free_gigabytes', lambda folder: 1.0)
    with pytest.raises(errors.UserError, match='1.0 GB free and 3.0 GB are needed'):
        steps.make_venv(environment, options)

    monkeypatch.setenv('CXX', 'no-such-compiler')
    with pytest.raises(errors.UserError, match='No C.. compiler was found'):
        steps.make_venv(environment, options)
    assert not environment.folder.exists()


def test_a_wheel_of_another_stack_does_not_replace_the_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv('MMINLINE_CACHE', str(tmp_path))
    monkeypatch.setenv('CXX', 'no-such-compiler')
    cached = tmp_path / 'mmcv-2.1.0_cpu' / 'mmcv-2.1.0.whl'
    cached.parent.mkdir()
    cached.touch()

    with pytest.raises(errors.UserError, match='No C.. compiler was found'):
        steps.make_venv(Environment(tmp_path / 'new'), SimpleNamespace(stack='onedl'))


@pytest.mark.parametrize('version', [(3, 6), (3, 10), (3, 13)])
def test_an_unsupported_python_is_told_which_ones_are(monkeypatch, version):
    monkeypatch.setattr(sys, 'version_info', (*version, 0, 'final', 0))

    with pytest.raises(SystemExit, match=r'has to be 3.11 \(tried\) or 3.12.*got Python'):
        runpy.run_path(str(INSTALL), run_name='__main__')


def test_the_environment_loses_what_misleads_and_keeps_the_mirrors(monkeypatch):
    for name in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV', 'PIP_TARGET', 'PIP_PREFIX'):
        monkeypatch.setenv(name, '/elsewhere')
    for name in ('PIP_INDEX_URL', 'PIP_FIND_LINKS', 'PIP_CERT', 'HTTPS_PROXY'):
        monkeypatch.setenv(name, 'kept')
    monkeypatch.setenv('PIP_USER', '1')
    environment = processes.clean_environment()

    assert '/elsewhere' not in environment.values()
    assert environment['PIP_USER'] == '0'
    assert environment['PIP_INDEX_URL'] == environment['PIP_CERT'] == 'kept'
    assert environment['PIP_FIND_LINKS'] == environment['HTTPS_PROXY'] == 'kept'


@pytest.mark.parametrize(
    'output, cure',
    [
        ('OSError: [Errno 28] No space left on device', 'free some space'),
        ("ModuleNotFoundError: No module named 'pkg_resources'", 'setuptools>=77,<82'),
        ('ensurepip is not available.', 'python3-venv'),
        ('NewConnectionError: Failed to establish a new connection', 'check the network'),
        ('ERROR: Could not find x==1 (from versions: none)', 'check the network'),
        ('x needs y<2\nERROR: ResolutionImpossible', '(?s)or the package index.*x needs y<2'),
        ('ReadTimeout\nx needs y<2\nERROR: ResolutionImpossible', 'x needs y<2'),
        ('c++: fatal error: Killed signal terminated program cc1plus', 'JOBS=1'),
        ("ModuleNotFoundError: No module named 'mmcv._ext'", 'environment/build_mmcv.py'),
        ('something new', 'something new'),
    ],
)
def test_a_failed_command_is_explained(tmp_path, output, cure):
    command = [sys.executable, '-c', f'print({output!r}); raise SystemExit(1)']

    with pytest.raises(errors.UserError, match=cure):
        processes.run_logged(command, tmp_path / 'log', dict(os.environ))
