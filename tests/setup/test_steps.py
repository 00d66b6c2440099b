"""Steps of ``make setup``: what makes each of them necessary again, and what they install."""

import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

import build_mmcv
import steps

ROOT = Path(__file__).parents[2]
PINS = {
    canonicalize_name(name): version
    for file in (ROOT / 'requirements').glob('*.txt')
    for name, version in re.findall(r'^(\S+)==(\S+)$', file.read_text(), re.M)
}


def test_the_plan_follows_every_input(monkeypatch, tmp_path):
    for name in ('shim.py', 'constraints.txt', 'torch.txt', *(f'{n}.txt' for n in steps.STACK)):
        (tmp_path / name).write_text('')
    (tmp_path / 'mminline').mkdir()
    monkeypatch.setattr(steps, 'ROOT', tmp_path)
    monkeypatch.setattr(steps, 'PINS', tmp_path)
    monkeypatch.setattr(steps, 'SHIM', tmp_path / 'shim.py')

    def changed_by(path: str) -> list[bool]:
        before = steps.plan(editable=False)
        (tmp_path / path).write_text('changed')
        after = steps.plan(editable=False)
        return [old.mark != new.mark for old, new in zip(before, after, strict=True)]

    no, yes = False, True
    for name in ('constraints.txt', 'torch.txt', 'shim.py'):
        assert changed_by(name) == [no, yes, yes, yes, yes], name
    for name in ('openmmlab.txt', 'timm.txt', 'export.txt', 'large.txt', 'dev.txt'):
        assert changed_by(name) == [no, no, no, yes, yes], name
    assert changed_by('mminline/new.py') == [no, no, no, no, yes]
    assert changed_by('notes.txt') == [no, no, no, no, no]


def test_developing_and_back_reinstalls_the_project_alone():
    wheel, editable = steps.plan(editable=False), steps.plan(editable=True)

    assert wheel[:-1] == editable[:-1]
    assert wheel[-1] != editable[-1]


def test_the_copy_for_the_wheel_holds_no_leftovers(tmp_path):
    steps.copy_project(tmp_path)
    names = {path.name for path in tmp_path.rglob('*')}

    assert {'mminline', 'configs', 'tools', 'setup.py', 'model-index.yml'} <= names
    assert not names & {'__pycache__', 'build', 'tests', '.venv', '.mim', 'mminline.egg-info'}


def test_versions_written_in_two_places_agree():
    assert PINS['mmcv'] == build_mmcv.MMCV_VERSION


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, in .venv')
def test_all_that_is_installed_is_pinned_and_of_the_pinned_version():
    # One folder: setuptools adds that of its own copies of packages to the path.
    installed = {
        canonicalize_name(found.name): found.version.partition('+')[0]
        for found in metadata.distributions(path=[sysconfig.get_path('purelib')])
    }

    assert {name: installed.get(name) for name in PINS} == PINS
    assert installed.keys() - PINS.keys() == {'mminline', 'pip'}
