"""What `import mminline` says of an installation that lacks a package or has two stacks."""

import subprocess
import sys
import warnings

import pytest

from mminline import stack


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)


def hide(*modules: str) -> str:
    """Code that makes modules look as if they were not installed."""
    return (
        'import importlib.util\n'
        'find = importlib.util.find_spec\n'
        f'importlib.util.find_spec = lambda name, *rest: '
        f'None if name in {modules!r} else find(name, *rest)\n'
    )


def test_a_backbone_without_mmcv_names_what_is_missing_and_how_to_get_it():
    finished = python(hide('mmcv') + 'import mminline\nmminline.InLinePVT')

    last = finished.stderr.splitlines()[-1]
    assert last.startswith('ModuleNotFoundError: mminline.InLinePVT needs mmcv, not installed here')
    assert 'README' in last and 'pip install "mmcv-lite<2.2"' in last


@pytest.mark.parametrize('line', ['from mminline import InLineSwin', 'from mminline import models'])
def test_imports_of_what_needs_the_stack_say_the_same(line):
    finished = python(hide('mmengine', 'mmcv') + line)

    assert 'needs mmengine and mmcv, not installed here' in finished.stderr.splitlines()[-1]


def test_what_needs_no_stack_imports_without_it():
    code = hide('torch', 'mmengine', 'mmcv')
    code += 'from mminline import visualization\nimport mminline\n'
    code += "assert not hasattr(mminline, 'something_else')\n"

    finished = python(code)

    assert finished.returncode == 0, finished.stderr


def test_two_stacks_are_warned_of_with_the_cure(installed):
    installed('mmengine', 'onedl-mmengine', 'onedl-mmcv')

    with pytest.warns(
        UserWarning, match='over each other: mmengine and onedl-mmengine, onedl-mmcv'
    ) as seen:
        stack.warn_of_clash()
    assert 'Uninstall all of them, then install one stack.' in str(seen[0].message)


@pytest.mark.parametrize(
    ('names', 'found'),
    [
        (('openmim', 'onedl-mmengine', 'onedl-mim'), 'openmim and onedl-mmengine, onedl-mim'),
        (('mmcv-lite', 'onedl-mmcv'), 'mmcv-lite and onedl-mmcv'),
        (('mmengine', 'mmcv', 'mmcv-lite'), 'mmcv and mmcv-lite have the same modules'),
    ],
)
def test_packages_that_share_a_module_are_warned_of(installed, names, found):
    installed(*names)

    with pytest.warns(UserWarning, match=found):
        stack.warn_of_clash()


@pytest.mark.parametrize(
    'names',
    [
        ('mmengine', 'mmcv', 'openmim'),
        ('mmengine', 'mmcv-lite'),
        ('openmim', 'onedl-mmengine', 'onedl-mmcv'),
    ],
)
def test_one_stack_is_not_warned_of(installed, names):
    installed(*names)

    with warnings.catch_warnings():
        warnings.simplefilter('error')
        stack.warn_of_clash()


@pytest.fixture
def both_stacks(tmp_path) -> str:
    """Code that puts distributions of both stacks in sight, as pip leaves them."""
    for name in ('onedl_mmengine', 'mmengine'):
        folder = tmp_path / f'{name}-9.dist-info'
        folder.mkdir()
        (folder / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 9\n')
    return f'import sys; sys.path.insert(0, {str(tmp_path)!r})\n'


def test_importing_mminline_warns_once(both_stacks):
    finished = python(both_stacks + hide('mmcv') + 'import mminline\nimport mminline.visualization')

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count('Two stacks with the same modules') == 1


def test_a_mixture_that_does_not_import_is_warned_of_first(both_stacks, tmp_path):
    (tmp_path / 'mmengine').mkdir()
    (tmp_path / 'mmengine' / '__init__.py').write_text('from . import half_of_another_version')

    finished = python(both_stacks + 'import mminline')

    assert 'half_of_another_version' in finished.stderr.splitlines()[-1]
    assert 'Two stacks with the same modules' in finished.stderr
