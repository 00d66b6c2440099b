"""Steps of the set-up: what is installed, in which order, and what each step depends on."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import build_mmcv
from cpp_compiler import check_compiler
from errors import UserError, check_disk
from processes import clean_environment
from stacks import STACKS
from virtual_environment import Environment, Step

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / 'requirements'
SHIM = ROOT / 'environment' / 'torchvision_on_cpu.py'
# Pins of every stack; its own have its name.
SHARED = ('mim', 'timm', 'export', 'large', 'explore', 'docs', 'dev')
# What the wheel is made of; nothing else can get into it.
PROJECT = (
    *('mminline', 'configs', 'tools', 'model-index.yml'),
    *('setup.py', 'pyproject.toml', 'MANIFEST.in'),
    *('README.md', 'LICENSE', 'CHANGELOG.md', 'CITATION.cff'),
)
VENV_GIGABYTES = 3.0
IMPORT_ALL = 'import mmcv.ops, mmdet.models, mmseg.models, timm'


def plan(stack: str, editable: bool) -> list[Step]:
    """List the steps of a stack's set-up; each depends on all before it."""
    venv = fingerprint(str(ROOT), sys.base_prefix, sys.version)
    torch = fingerprint(venv, PINS / 'constraints.txt', PINS / 'torch.txt', SHIM)
    mmcv = fingerprint(torch, *STACKS[stack])
    packages = fingerprint(mmcv, *(PINS / f'{name}.txt' for name in (stack, *SHARED)))
    project = 'editable' if editable else fingerprint(packages, *project_files())
    return [
        Step('virtual environment', make_venv, venv),
        Step('torch and torchvision', install_torch, torch),
        Step('mmcv with ops', install_mmcv, mmcv),
        Step('mmengine, mmdet, mmseg, mim, timm and test tools', install_stack, packages),
        Step('mminline', install_editable if editable else install_project, project),
    ]


def make_venv(environment: Environment, options) -> None:
    if not any(build_mmcv.cache_folder().glob(f'{STACKS[options.stack].mmcv}-*/*.whl')):
        check_compiler()  # now, not after a long download
    check_disk(environment.folder.parent, VENV_GIGABYTES)
    environment.folder.mkdir(exist_ok=True)  # a set-up killed at this point leaves it empty
    with environment.writing():
        # The interpreter behind an activated environment, should this run in one.
        base_python = getattr(sys, '_base_executable', sys.executable)
        environment.run(base_python, '-I', '-m', 'venv', environment.folder)


def install_torch(environment: Environment, options) -> None:
    index = ['--extra-index-url', options.torch_index] if options.torch_index else []
    environment.pip_install(*index, *pinned('torch'))
    install_shim(environment)


def install_shim(environment: Environment) -> None:
    """Have each start of Python prepare for a torchvision that was built for CUDA."""
    shutil.copy2(SHIM, environment.packages)
    # A line of a .pth file that begins with import is run at each start of Python.
    (environment.packages / f'{SHIM.stem}.pth').write_text(f'import {SHIM.stem}\n')


def install_mmcv(environment: Environment, options) -> None:
    # -E and -s instead of -I, which would hide the modules beside the program.
    command = [environment.python, '-E', '-s', build_mmcv.__file__, '--stack', options.stack]
    command += ['--jobs', str(options.jobs)] if options.jobs else []
    with tempfile.TemporaryDirectory() as folder:
        finished = subprocess.run(
            [*command, '--out', folder], env=clean_environment(), pass_fds=environment.inherit
        )
        if finished.returncode:
            raise UserError('mmcv was not built, for the reason above.')
        environment.pip_install('--no-deps', *Path(folder).glob('*.whl'))


def install_stack(environment: Environment, options) -> None:
    environment.pip_install(*pinned(options.stack, *SHARED))
    environment.run(environment.python, '-I', '-W', 'ignore', '-c', IMPORT_ALL)


def install_project(environment: Environment, options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, 'source'), Path(folder, 'wheel')
        copy_project(source)
        # First the wheel alone: a mistake in setup.py must not cost the whole environment.
        pip_wheel = ['pip', 'wheel', '--no-deps', '--no-build-isolation', '--wheel-dir', out]
        environment.run(environment.python, '-I', '-m', *pip_wheel, source)
        environment.pip_install('--no-deps', '--force-reinstall', *out.glob('*.whl'))


def install_editable(environment: Environment, options) -> None:
    environment.pip_install('--no-deps', '--no-build-isolation', '--editable', ROOT)


def pinned(*names: str) -> list:
    """Arguments of pip for files of ``requirements/``."""
    files = [argument for name in names for argument in ('-r', PINS / f'{name}.txt')]
    return [*files, '-c', PINS / 'constraints.txt']


def project_files() -> list[Path]:
    """Files that the wheel is made of."""
    tops = [ROOT / name for name in PROJECT]
    files = [path for top in tops for path in ([top] if top.is_file() else top.rglob('*'))]
    return sorted(path for path in files if path.is_file() and '__pycache__' not in path.parts)


def copy_project(folder: Path) -> None:
    for path in project_files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def fingerprint(*parts: str | Path) -> str:
    """Hash strings, and files by name and content."""
    digest = hashlib.sha256()
    for part in parts:
        is_file = isinstance(part, Path)
        digest.update(str(part.relative_to(ROOT) if is_file else part).encode() + b'\0')
        digest.update(part.read_bytes() + b'\0' if is_file else b'\0')
    return digest.hexdigest()
