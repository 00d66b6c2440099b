"""torchvision in ``.venv``: at no cost until it is imported, and no harm to the stack then."""

import subprocess
import sys
import venv

import pytest

import steps
from virtual_environment import Environment

pytestmark = pytest.mark.slow

# mmengine's collect_env imports torchvision too, and leaves it out where that fails.
COLLECT = "from mmengine.utils.dl_utils import collect_env; assert 'TorchVision' in collect_env()"
STATEMENTS = ['import torchvision', 'import timm', 'import mmdet.models', 'import mmseg.models']
STATEMENTS += [COLLECT]


@pytest.fixture
def environment(tmp_path):
    """A virtual environment with the shim, an empty torchvision, and no torch."""
    venv.create(tmp_path / '.venv', symlinks=True)
    (tmp_path / '.venv' / 'setup.json').write_text('{}')
    environment = Environment(tmp_path / '.venv')
    steps.install_shim(environment)
    torchvision = environment.packages / 'torchvision'
    torchvision.mkdir()
    (torchvision / '__init__.py').write_text('import torchvision._meta_registrations')
    (torchvision / '_meta_registrations.py').touch()
    return environment


def run_python(environment: Environment, code: str) -> subprocess.CompletedProcess:
    command = [environment.python, '-I', '-c', code]
    return subprocess.run(command, capture_output=True, text=True)


def test_torch_is_not_imported_until_torchvision_is(environment):
    (environment.packages / 'torch.py').write_text('raise RuntimeError("imported")')

    assert run_python(environment, 'import json').returncode == 0
    assert 'RuntimeError: imported' in run_python(environment, 'import torchvision').stderr


@pytest.mark.parametrize(('loaded', 'declared'), [(['nms', 'qnms'], []), ([], ['nms', 'qnms'])])
def test_operators_are_declared_where_torchvision_could_not_load_its_own(
    environment, loaded, declared
):
    fake = (
        'from types import SimpleNamespace as Names\n'
        'class Library:\n'
        '    def __init__(self, *names): assert names == ("torchvision", "DEF")\n'
        '    def define(self, schema): print(schema.partition("(")[0])\n'
        f'ops = Names(torchvision=Names(**dict.fromkeys({loaded})))\n'
        'library = Names(Library=Library)'
    )
    (environment.packages / 'torch.py').write_text(fake)

    assert run_python(environment, 'import torchvision').stdout.split() == declared


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, in .venv')
@pytest.mark.parametrize('first', range(len(STATEMENTS)))
def test_the_stack_imports_beside_it_in_any_order(first):
    # Turned around like this, each comes before each other one once, and after it once.
    code = '; '.join([*STATEMENTS[first:], *STATEMENTS[:first]])

    subprocess.run([sys.executable, '-I', '-W', 'ignore', '-c', code], check=True)
