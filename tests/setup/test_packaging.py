"""Contents of the wheel and the source archive, and needs of the installed package."""

import ast
import email
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import install
import mminline
import steps

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# make test isolates Python, so that the installed wheel is tested and not the source tree.
PYTHON = [sys.executable, '-I'] if sys.flags.isolated else [sys.executable]
STACK = {'mmengine', 'mmcv', 'mmdet', 'mmsegmentation'}
FORKS = {'onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'onedl-mmsegmentation'}


def run_python(*arguments: str, cwd: Path | None = None) -> str:
    """Run Python with the same mminline in sight as here; return what it prints."""
    command = [*PYTHON, '-W', 'ignore', *arguments]
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def build(folder: Path, kind: str, out: Path) -> Path:
    """Call the build backend in ``folder`` as pip does; return the wheel or sdist."""
    code = f'import setuptools.build_meta as b; b.build_{kind}({str(out)!r})'
    run_python('-c', code, cwd=folder)
    (made,) = out.glob('mminline-*')
    return made


@pytest.fixture
def copy(tmp_path):
    """Files of the project, and the set-up beside them as in a clone."""
    steps.copy_project(tmp_path / 'copy')
    shutil.copytree(ROOT / 'environment', tmp_path / 'copy' / 'environment')
    return tmp_path / 'copy'


@pytest.fixture
def wheel(copy, tmp_path):
    return zipfile.ZipFile(build(copy, 'wheel', tmp_path / 'wheel'))


def files_for_mim() -> set[str]:
    files = [path for top in ('configs', 'tools') for path in ROOT.glob(f'{top}/**/*')]
    kept = [path for path in files if path.is_file() and '__pycache__' not in path.parts]
    return {f'mminline/.mim/{path.relative_to(ROOT)}' for path in kept} | {
        'mminline/.mim/model-index.yml'
    }


def requirements(wheel: zipfile.ZipFile) -> tuple[set[str], dict[str, set[str]]]:
    """Names of the base dependencies, and of those of each extra."""
    (metadata,) = (name for name in wheel.namelist() if name.endswith('.dist-info/METADATA'))
    message = email.message_from_bytes(wheel.read(metadata))
    base, extras = set(), {name: set() for name in message.get_all('Provides-Extra')}
    for line in message.get_all('Requires-Dist'):
        name = re.match(r'[\w-]+', line).group()
        extra = re.search(r'extra == ["\'](\w+)', line)
        (extras[extra.group(1)] if extra else base).add(name)
    return base, extras


def test_the_wheel_holds_what_mim_looks_for_and_the_tree_does_not(wheel):
    in_wheel = {name for name in wheel.namelist() if '/.mim/' in name}

    assert in_wheel == files_for_mim()
    assert not (ROOT / 'mminline' / '.mim').exists()


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    tops = {name.partition('/')[0] for name in wheel.namelist()}

    assert tops == {'mminline', f'mminline-{mminline.__version__}.dist-info'}


def test_a_wheel_made_from_the_sdist_is_the_same(copy, wheel, tmp_path):
    with tarfile.open(build(copy, 'sdist', tmp_path / 'sdist')) as archive:
        archive.extractall(tmp_path / 'unpacked', filter='data')
    (unpacked,) = (tmp_path / 'unpacked').iterdir()
    again = zipfile.ZipFile(build(unpacked, 'wheel', tmp_path / 'again'))

    assert sorted(again.namelist()) == sorted(wheel.namelist())
    assert not (unpacked / 'environment').exists()


def test_a_second_build_in_one_folder_holds_nothing_stale(copy, tmp_path):
    (copy / 'configs' / 'gone.py').touch()
    build(copy, 'wheel', tmp_path / 'first')
    (copy / 'configs' / 'gone.py').unlink()
    second = zipfile.ZipFile(build(copy, 'wheel', tmp_path / 'second'))

    assert 'mminline/.mim/configs/gone.py' not in second.namelist()


def test_the_version_has_one_source(wheel):
    assert wheel.filename.endswith(f'mminline-{mminline.__version__}-py3-none-any.whl')


def test_the_wheel_asks_for_the_oldest_python_of_the_set_up_or_a_later_one(wheel):
    (metadata,) = (name for name in wheel.namelist() if name.endswith('.dist-info/METADATA'))
    asked = SpecifierSet(email.message_from_bytes(wheel.read(metadata))['Requires-Python'])

    accepted = {(3, minor) for minor in range(8, 20) if f'3.{minor}' in asked}
    assert accepted >= set(install.SUPPORTED)
    assert min(accepted) == min(install.SUPPORTED)


def test_the_stack_comes_by_extras_only(wheel):
    base, extras = requirements(wheel)

    assert base == {'torch', 'numpy'}
    assert set(extras) == {
        *('openmmlab', 'onedl', 'mim', 'timm', 'tensorboard'),
        *('export', 'large', 'explore', 'docs', 'dev'),
    }
    assert extras['openmmlab'] < extras['mim']
    # One stack at a time: they hold the same modules.
    for name, needed in extras.items():
        stack = {'openmmlab': STACK, 'mim': STACK, 'onedl': FORKS}.get(name, set())
        assert needed & (STACK | FORKS | {'mmcv-lite'}) == stack, name


def test_the_package_imports_only_what_it_declares(wheel):
    base, extras = requirements(wheel)
    # Detectors and segmentors are for configs and tools to name, not for the package.
    declared = base | set.union(*extras.values()) - {'mmdet', 'mmsegmentation'}
    # OpenCV comes with mmcv, and with the extra for exported models.
    assert 'opencv-python' in extras['export']
    allowed = declared | {'mminline', 'cv2'} | sys.stdlib_module_names

    for path in (ROOT / 'mminline').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module)
            roots = {name.partition('.')[0] for name in names}
            assert roots <= allowed, path


def test_mminline_imports_with_neither_mmdet_nor_mmseg():
    code = 'import sys; sys.modules.update(mmdet=None, mmseg=None); import mminline'

    run_python('-c', code)


@pytest.mark.parametrize('scope', ['mmdet', 'mmseg'])
def test_the_backbone_resolves_from_the_scope_of_mmdet_and_mmseg(scope):
    # A new process: nothing has imported mminline there.
    code = (
        'from mmengine.registry import MODELS, init_default_scope\n'
        f'init_default_scope({scope!r})\n'
        f'import {scope}.registry\n'
        f'for registry in (MODELS, {scope}.registry.MODELS):\n'
        '    full = registry.build(dict(type="mminline.InLinePVT", arch="tiny"))\n'
        '    bare = registry.build(dict(type="InLinePVT", arch="tiny"))\n'
        '    assert type(full) is type(bare) and full.strides == (4, 8, 16, 32)'
    )

    run_python('-c', code)


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, on the installed wheel')
def test_the_tests_run_on_the_installed_wheel():
    package = Path(mminline.__file__).parent

    assert package.parent.name == 'site-packages'
    assert (package / '.mim' / 'tools' / 'train.py').exists()
    assert str(ROOT) not in sys.path


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, on the installed wheel')
def test_mim_lists_the_installed_wheel():
    assert re.search(rf'mminline +{mminline.__version__}', run_python('-m', 'mim', 'list'))
