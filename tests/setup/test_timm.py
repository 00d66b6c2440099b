"""The second environment of ``make setup``, and how ``make test`` shares out the tests."""

import os
import subprocess
from pathlib import Path

import pytest

import install

ROOT = Path(__file__).parents[2]


def test_the_plan_follows_its_inputs_and_not_the_sources(monkeypatch, tmp_path):
    names = ('torch', 'openmmlab', 'export', 'dev', 'constraints', 'timm')
    (tmp_path / 'environment').mkdir()
    for name in (*(f'{name}.txt' for name in names), 'environment/torchvision_on_cpu.py'):
        (tmp_path / name).write_text('')
    (tmp_path / 'mminline').mkdir()
    monkeypatch.setattr(install, 'ROOT', tmp_path)
    monkeypatch.setattr(install, 'PINS', tmp_path)

    def changed_by(path: str) -> list[bool]:
        before = install.plan_timm(install.plan(editable=False))
        (tmp_path / path).write_text('changed')
        after = install.plan_timm(install.plan(editable=False))
        return [old[2] != new[2] for old, new in zip(before, after, strict=True)]

    no, yes = False, True
    assert changed_by('environment/torchvision_on_cpu.py') == [yes, yes, yes]
    assert changed_by('timm.txt') == [no, yes, yes]
    assert changed_by('torch.txt') == [no, yes, yes]
    assert changed_by('openmmlab.txt') == [no, no, yes]
    assert changed_by('mminline/new.py') == [no, no, no]


def test_it_sees_the_packages_of_the_main_one_behind_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(install, 'ROOT', tmp_path)
    environment = install.Environment(tmp_path / '.venv-timm')
    install.make_timm_venv(environment, options=None)
    (second,) = environment.folder.glob('lib/python*/site-packages')
    main = tmp_path / '.venv' / second.relative_to(environment.folder)
    main.mkdir(parents=True)
    (tmp_path / 'linked').mkdir()
    (main / 'editable.pth').write_text(str(tmp_path / 'linked'))
    places = {'both': (main, second), 'of_main': (main,), 'of_link': (tmp_path / 'linked',)}
    for name, folders in places.items():
        for folder in folders:
            (folder / f'{name}.py').touch()

    code = 'import both, of_main, of_link; print(*(m.__file__ for m in (both, of_main, of_link)))'
    command = [environment.python, '-I', '-c', code]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    parents = [Path(path).parent for path in found]

    assert parents == [second, main, tmp_path / 'linked']


def test_torch_is_not_imported_until_torchvision_is(monkeypatch, tmp_path):
    monkeypatch.setattr(install, 'ROOT', tmp_path)
    environment = install.Environment(tmp_path / '.venv-timm')
    install.make_timm_venv(environment, options=None)
    (packages,) = environment.folder.glob('lib/python*/site-packages')
    (packages / 'torch.py').write_text('raise RuntimeError("imported")')
    (packages / 'torchvision').mkdir()
    (packages / 'torchvision' / '__init__.py').write_text('import torchvision._meta_registrations')

    run = [environment.python, '-I', '-c']
    assert subprocess.run([*run, 'import json']).returncode == 0
    failed = subprocess.run([*run, 'import torchvision'], capture_output=True, text=True)
    assert 'RuntimeError: imported' in failed.stderr


@pytest.mark.parametrize(
    ('tests', 'main', 'second'),
    [
        (None, 'tests', 'tests_timm'),
        ('tests', 'tests', None),
        ('tests/test_block.py -x', 'tests/test_block.py -x', None),
        ('tests_timm/test_models.py', None, 'tests_timm/test_models.py'),
        ("tests tests_timm -k 'a or b'", "tests -k 'a or b'", "tests_timm -k 'a or b'"),
        ('-x', '-x', None),
    ],
)
def test_each_test_runs_in_its_environment(tests, main, second):
    chosen = [] if tests is None else [f'TESTS={tests}']
    command = ['make', '-C', ROOT, '--dry-run', 'test', *chosen]
    # What a make around this one was told is not for this one.
    told = ('MAKEFLAGS', 'MAKEOVERRIDES', 'MFLAGS', 'TESTS')
    alone = {name: value for name, value in os.environ.items() if name not in told}
    planned = subprocess.run(command, env=alone, capture_output=True, text=True, check=True).stdout
    runs = {
        words[0].split('/')[0]: ' '.join(words[4:]).split(' ||')[0]
        for words in map(str.split, planned.splitlines())
        if 'pytest' in words
    }

    expected = {'.venv': main, '.venv-timm': second}
    assert runs == {name: words for name, words in expected.items() if words}
