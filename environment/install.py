"""Make or complete ``.venv`` and ``.venv-timm``, step by step: the program behind ``make setup``.

The second sees all of the first and adds timm and torchvision, which must not get into the first.

A step counts as done when its record, a hash of all that it depends on, was written after it
ended; so an interrupted set-up is finished by the next run, and a finished one costs the time
of hashing a few files. Standard library only.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12))
if sys.version_info[:2] not in SUPPORTED:
    sys.exit(
        'setup: Python has to be 3.11 (tried) or 3.12 (not tried, but all packages exist for it), '
        f'got Python {".".join(map(str, sys.version_info[:2]))}: name another one, as in '
        'make setup PYTHON=python3.11.'
    )

import build_mmcv  # noqa: E402
from cpp_compiler import check_compiler  # noqa: E402
from errors import UserError, check_disk, user_errors  # noqa: E402
from processes import clean_environment, lock, run_logged  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / 'requirements'
# What the wheel is made of; nothing else can get into it.
PROJECT = (
    *('mminline', 'configs', 'tools', 'model-index.yml'),
    *('setup.py', 'pyproject.toml', 'MANIFEST.in'),
    *('README.md', 'LICENSE', 'CHANGELOG.md', 'CITATION.cff'),
)
VENV_GIGABYTES = 3.0
IMPORT_ALL = 'import mmcv.ops, mmdet.models, mmseg.models'


class Environment:
    """A virtual environment and the record of what was finished in it."""

    def __init__(self, folder: Path, inherit: tuple = ()):
        self.folder = folder
        self.python = folder / 'bin' / 'python'
        self.record_file = folder / 'setup.json'
        self.inherit = inherit
        self.record = {}
        if self.record_file.exists():
            self.record = json.loads(self.record_file.read_text())
        elif folder.exists() and any(path.name != 'setup.new' for path in folder.iterdir()):
            raise UserError(
                f'{folder} was not made by make setup: move it away or remove it, and run again.'
            )

    def save(self, **changes) -> None:
        """Change the record in one stroke, so that a kill leaves the old or the new one."""
        self.record.update(changes)
        new_file = self.record_file.with_suffix('.new')
        new_file.write_text(json.dumps(self.record, indent=2))
        new_file.replace(self.record_file)

    @contextlib.contextmanager
    def writing(self):
        """Mark that packages are being written; a mark left over means a half-written folder."""
        self.save(writing=True)
        yield
        self.save(writing=False)

    def discard(self) -> None:
        """Remove the folder, out of the way first: half of it must not pass for an environment."""
        doomed = self.folder.with_name(f'{self.folder.name}.old')
        shutil.rmtree(doomed, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(doomed)
            shutil.rmtree(doomed)
        self.record = {}

    def run(self, *command) -> None:
        log = self.folder / 'setup.log'
        environment = clean_environment()
        run_logged([*map(str, command)], log, environment, inherit=self.inherit)

    def pip_install(self, *arguments) -> None:
        with self.writing():
            # Python compiles a module when it is first imported; most of them never are.
            self.run(self.python, '-I', '-m', 'pip', 'install', '--no-compile', *arguments)


def make_venv(environment: Environment, options) -> None:
    if not any(build_mmcv.cache_folder().glob('*/mmcv-*.whl')):
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


def install_mmcv(environment: Environment, options) -> None:
    # -E and -s instead of -I, which would hide the module beside the program.
    command = [environment.python, '-E', '-s', Path(build_mmcv.__file__)]
    command += ['--jobs', str(options.jobs)] if options.jobs else []
    with tempfile.TemporaryDirectory() as folder:
        clean = clean_environment()
        finished = subprocess.run(
            [*command, '--out', folder], env=clean, pass_fds=environment.inherit
        )
        if finished.returncode:
            raise UserError('mmcv was not built, for the reason above.')
        environment.pip_install('--no-deps', *Path(folder).glob('*.whl'))


def install_stack(environment: Environment, options) -> None:
    environment.pip_install(*pinned('openmmlab'), *pinned('export'), *pinned('dev'))
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


def make_timm_venv(environment: Environment, options) -> None:
    environment.folder.mkdir(exist_ok=True)
    with environment.writing():
        # Without a pip of its own: it sees that of the main environment, with all else.
        make = [getattr(sys, '_base_executable', sys.executable), '-I', '-m', 'venv']
        environment.run(*make, '--without-pip', environment.folder)
        (packages,) = environment.folder.glob('lib/python*/site-packages')
        main = ROOT / '.venv' / packages.relative_to(environment.folder)
        shutil.copy2(Path(__file__).with_name('torchvision_on_cpu.py'), packages)
        # A line that begins with import is run at each start of Python.
        lines = f'import site; site.addsitedir({str(main)!r})\nimport torchvision_on_cpu\n'
        (packages / 'main_environment.pth').write_text(lines)


def install_timm(environment: Environment, options) -> None:
    index = ['--extra-index-url', options.torch_index] if options.torch_index else []
    # Without dependencies: nothing may replace, or add to, what the main environment has.
    environment.pip_install('--no-deps', *index, '-r', PINS / 'timm.txt')


def check_timm(environment: Environment, options) -> None:
    environment.run(environment.python, '-I', '-W', 'ignore', '-c', 'import timm')


def pinned(name: str) -> list:
    return ['-r', PINS / f'{name}.txt', '-c', PINS / 'constraints.txt']


def project_files() -> list:
    """Files that the wheel is made of."""
    tops = [ROOT / name for name in PROJECT]
    files = [path for top in tops for path in ([top] if top.is_file() else top.rglob('*'))]
    return sorted(path for path in files if path.is_file() and '__pycache__' not in path.parts)


def copy_project(folder: Path) -> None:
    for path in project_files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def fingerprint(*parts) -> str:
    """Hash strings, and files by name and content."""
    digest = hashlib.sha256()
    for part in parts:
        is_file = isinstance(part, Path)
        digest.update(str(part.relative_to(ROOT) if is_file else part).encode() + b'\0')
        digest.update(part.read_bytes() + b'\0' if is_file else b'\0')
    return digest.hexdigest()


def plan(editable: bool) -> list:
    """The steps as (name, function, fingerprint); each depends on all before it."""
    pins = PINS / 'constraints.txt'
    venv = fingerprint(str(ROOT), sys.base_prefix, sys.version)
    torch = fingerprint(venv, pins, PINS / 'torch.txt')
    mmcv = fingerprint(torch, build_mmcv.MMCV_VERSION)
    names = ('openmmlab', 'export', 'dev')
    stack = fingerprint(mmcv, *(PINS / f'{name}.txt' for name in names))
    project = 'editable' if editable else fingerprint(stack, *project_files())
    return [
        ('virtual environment', make_venv, venv),
        ('torch', install_torch, torch),
        ('mmcv with ops', install_mmcv, mmcv),
        ('mmengine, mmdet, mmseg, mim and test tools', install_stack, stack),
        ('mminline', install_editable if editable else install_project, project),
    ]


def plan_timm(main_steps: list) -> list:
    """The steps of the second environment; the last one is repeated when the first changed."""
    marks = [mark for _, _, mark in main_steps]
    venv = fingerprint(marks[0], ROOT / 'environment' / 'torchvision_on_cpu.py')
    timm = fingerprint(venv, PINS / 'torch.txt', PINS / 'timm.txt')
    return [
        ('virtual environment on top of .venv', make_timm_venv, venv),
        ('timm and torchvision', install_timm, timm),
        ('import of timm', check_timm, fingerprint(timm, *marks[:-1])),
    ]


def set_up(environment: Environment, steps: list, options) -> None:
    """Do the steps that are not done; start anew where an old one stands in the way."""
    folder = environment.folder.name
    *pinned_steps, _ = steps
    changed = [name for name, _, mark in pinned_steps if environment.record.get(name, mark) != mark]
    if environment.record.get('writing') or changed:
        print(f'setup: {folder} is half-written or of other versions, it is made anew.')
        environment.discard()
    start = time.perf_counter()
    for number, (name, run, mark) in enumerate(steps, 1):
        if environment.record.get(name) != mark:
            began = time.perf_counter()
            print(f'[{number}/{len(steps)}] {name}', flush=True)
            environment.record.pop(name, None)  # true no more from the first change on
            run(environment, options)
            environment.save(**{name: mark})
            print(f'[{number}/{len(steps)}] {name}: {time.perf_counter() - began:.0f} s')
    print(f'setup: {folder} is complete ({time.perf_counter() - start:.0f} s).')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--torch-index', help='index of other builds of torch, such as CPU ones')
    parser.add_argument('--jobs', type=int, help='compilers at a time for mmcv')
    parser.add_argument('--editable', action='store_true', help='link mminline, do not copy it')
    options = parser.parse_args()
    message = 'Another set-up works in this folder: waiting for it.'
    with lock(ROOT / '.venv.lock', message) as descriptor:
        # pip inherits the lock: killed alone, this program leaves a pip that still writes.
        steps = plan(options.editable)
        set_up(Environment(ROOT / '.venv', inherit=(descriptor,)), steps, options)
        environment = Environment(ROOT / '.venv-timm', inherit=(descriptor,))
        set_up(environment, plan_timm(steps), options)


if __name__ == '__main__':
    with user_errors('setup'):
        main()
