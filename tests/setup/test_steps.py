"""Steps of ``make setup``: what makes each of them necessary again, and what they install."""

import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

import steps
from stacks import STACKS


def pins(*names: str) -> dict[str, str]:
    """Versions in files of ``requirements/``."""
    texts = [(steps.PINS / f'{name}.txt').read_text() for name in names]
    found = re.findall(r'^(\S+)==(\S+)$', '\n'.join(texts), re.M)
    return {canonicalize_name(name): version for name, version in found}


def test_the_plan_follows_every_input(monkeypatch, tmp_path):
    for name in ('constraints', 'torch', 'openmmlab', 'onedl', *steps.SHARED):
        (tmp_path / f'{name}.txt').write_text('')
    (tmp_path / 'shim.py').write_text('')
    (tmp_path / 'mminline').mkdir()
    monkeypatch.setattr(steps, 'ROOT', tmp_path)
    monkeypatch.setattr(steps, 'PINS', tmp_path)
    monkeypatch.setattr(steps, 'SHIM', tmp_path / 'shim.py')

    def changed_by(path: str) -> list[bool]:
        before = steps.plan('openmmlab', editable=False)
        (tmp_path / path).write_text('changed')
        after = steps.plan('openmmlab', editable=False)
        return [old.mark != new.mark for old, new in zip(before, after, strict=True)]

    no, yes = False, True
    for name in ('constraints.txt', 'torch.txt', 'shim.py'):
        assert changed_by(name) == [no, yes, yes, yes, yes], name
    for name in ('openmmlab.txt', *(f'{name}.txt' for name in steps.SHARED)):
        assert changed_by(name) == [no, no, no, yes, yes], name
    assert changed_by('mminline/new.py') == [no, no, no, no, yes]
    assert changed_by('onedl.txt') == [no, no, no, no, no]
    assert changed_by('notes.txt') == [no, no, no, no, no]


def test_developing_and_back_reinstalls_the_project_alone():
    wheel, editable = (
        steps.plan('openmmlab', editable=False),
        steps.plan('openmmlab', editable=True),
    )

    assert wheel[:-1] == editable[:-1]
    assert wheel[-1] != editable[-1]


def test_the_copy_for_the_wheel_holds_no_leftovers(tmp_path):
    steps.copy_project(tmp_path)
    names = {path.name for path in tmp_path.rglob('*')}

    assert {'mminline', 'configs', 'tools', 'setup.py', 'model-index.yml'} <= names
    assert not names & {'__pycache__', 'build', 'tests', '.venv', '.mim', 'mminline.egg-info'}


def test_each_stack_has_an_environment_and_a_plan_of_its_own():
    plans = [steps.plan(stack, editable=False) for stack in STACKS]

    assert len({stack.folder for stack in STACKS.values()}) == len(STACKS)
    assert len({marks for *_, (_, _, marks), _ in plans}) == len(STACKS)


@pytest.mark.parametrize('stack', STACKS)
def test_the_mmcv_that_is_compiled_is_the_pinned_one(stack):
    assert pins(stack)[STACKS[stack].mmcv] == STACKS[stack].mmcv_version


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, in the environment it tests')
def test_all_that_is_installed_is_pinned_and_of_the_pinned_version():
    (stack,) = (name for name, stack in STACKS.items() if stack.folder == Path(sys.prefix).name)
    pinned = pins('constraints', 'torch', stack, *steps.SHARED)
    # One folder: setuptools adds that of its own copies of packages to the path.
    installed = {
        canonicalize_name(found.name): found.version.partition('+')[0]
        for found in metadata.distributions(path=[sysconfig.get_path('purelib')])
    }

    assert {name: installed.get(name) for name in pinned} == pinned
    browser = pins('browser').keys()  # of make test-browser, which installs them by itself
    assert installed.keys() - pinned.keys() - browser == {'mminline', 'pip'}
