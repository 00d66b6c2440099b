"""Build a wheel of mmcv with its compiled ops, for the torch of the Python that runs this.

mmdet and mmseg need mmcv < 2.2, of which no wheels exist beyond torch 2.1, and onedl-mmcv has none
for Python 3.11. A plain `pip install` builds out of sight of the installed torch and leaves the ops
out. This builds against the installed torch, in a fraction of the usual time: without debug
information, and with torch's headers parsed once instead of once per file (gcc, CPU ops).

Finished wheels are kept in $MMINLINE_CACHE, else in mminline/ of $XDG_CACHE_HOME or ~/.cache,
one for each mmcv, torch, Python and platform. Its path is printed, unless --out says where to:

    python environment/build_mmcv.py --out wheels && pip install wheels/mmcv-*.whl
    python environment/build_mmcv.py --stack onedl --cached    # fails where it would compile
"""

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from cpp_compiler import check_compiler, precompile_header
from errors import NO_PKG_RESOURCES, UserError, check_disk, user_errors
from processes import clean_environment, lock, run_logged, show_status
from stacks import DEFAULT, STACKS

# Naming CFLAGS makes setuptools drop its own flags, so the optimisation level has to be here.
OPTIMISATION = '-O2 -g0 -DNDEBUG -fwrapv'
BUILD_GIGABYTES = 2.0
JOB_GIGABYTES = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--stack', choices=STACKS, default=DEFAULT, help='default: %(default)s')
    parser.add_argument('--mmcv-version', help='another version than that of the stack')
    parser.add_argument(
        '--cuda', action='store_true', help='the ops for GPUs too (needs nvcc and a CUDA torch)'
    )
    parser.add_argument(
        '--jobs', type=int, help='compilers at a time (default: what cores and memory allow)'
    )
    parser.add_argument('--out', type=Path, help='folder that gets a copy of the wheel')
    parser.add_argument('--cached', action='store_true', help='take a finished wheel, or fail')
    options = parser.parse_args()
    stack = STACKS[options.stack]
    requirement = f'{stack.mmcv}=={options.mmcv_version or stack.mmcv_version}'
    if options.cached:
        wheel = find_wheel(requirement, options.cuda)
    else:
        wheel = build(requirement, options.cuda, options.jobs or default_jobs())
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        shutil.copy2(wheel, options.out)
    else:
        print(wheel)


def build(requirement: str, with_cuda: bool, jobs: int) -> Path:
    """Return the wheel from the cache, built first if it is not there.

    Args:
        requirement: Distribution and version, as in ``'mmcv==2.1.0'``.
        with_cuda: Whether to compile the ops for GPUs too.
        jobs: Number of compilers at a time.
    """
    torch = import_torch()
    folder = wheel_folder(requirement, with_cuda)
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / 'lock', 'Another build of this wheel runs: waiting for it.'):
        if wheels := sorted(folder.glob('*.whl')):
            print(f'{requirement} was built before, in {folder}.', flush=True)
            return wheels[0]
        environment = build_environment(with_cuda, jobs)
        check_tools(torch, with_cuda, environment['PATH'])
        check_disk(folder, BUILD_GIGABYTES)
        for leftover in folder.glob('build-*/'):  # of a killed build
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix='build-', dir=folder) as work:
            wheel = compile_wheel(requirement, Path(work), environment)
            check_wheel(wheel)
            # A wheel gets its place when it is whole: no kill can leave a broken one there.
            return wheel.replace(folder / wheel.name)


def find_wheel(requirement: str, with_cuda: bool) -> Path:
    """Return the wheel from the cache; never compile."""
    folder = wheel_folder(requirement, with_cuda)
    for wheel in sorted(folder.glob('*.whl')):
        return wheel
    raise UserError(f'{requirement} was not compiled for this torch yet: {folder} has no wheel.')


def compile_wheel(requirement: str, work: Path, environment: dict[str, str]) -> Path:
    start = time.perf_counter()
    print(f'Compiling {requirement} with {environment["MAX_JOBS"]} jobs.', flush=True)
    header = precompile_header(work, environment)
    if header:
        environment['CFLAGS'] += f' -include {shlex.quote(str(header))}'
    # pip unpacks and compiles below TMPDIR, so the next build finds what a killed one leaves.
    environment['TMPDIR'] = str(work)
    command = [sys.executable, '-I', '-m', 'pip', 'wheel', requirement, '--verbose']
    # The cache of pip knows nothing of torch's version; build isolation would hide torch.
    distribution = requirement.partition('==')[0]
    command += ['--no-binary', distribution, '--no-cache-dir', '--no-build-isolation', '--no-deps']
    command += ['--wheel-dir', str(work)]
    run_logged(command, work.parent / 'build.log', environment, compile_progress())
    print(f'Compiled {requirement} in {time.perf_counter() - start:.0f} s.', flush=True)
    return next(work.glob('*.whl'))


def build_environment(with_cuda: bool, jobs: int) -> dict[str, str]:
    environment = clean_environment()
    if not with_cuda:
        # mmcv adds its CUDA ops wherever it sees a GPU, asked to or not.
        environment['CUDA_VISIBLE_DEVICES'] = ''
    scripts = sysconfig.get_path('scripts')  # where pip put ninja; often not in PATH
    return environment | {
        'PATH': f'{scripts}{os.pathsep}{environment.get("PATH", os.defpath)}',
        'MMCV_WITH_OPS': '1',
        'FORCE_CUDA': '1' if with_cuda else '0',
        'MAX_JOBS': str(jobs),
        'CFLAGS': f'{OPTIMISATION} {environment.get("CFLAGS", "")}'.strip(),
    }


def default_jobs() -> int:
    """Number of compilers: one for each core that has enough memory."""
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9
    return max(1, min(os.cpu_count() or 1, int(memory / JOB_GIGABYTES)))


def import_torch() -> ModuleType:
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            f'torch is not installed for {sys.executable}: install the torch that mmcv is '
            'wanted for, then run this again.'
        ) from None
    return torch


def check_tools(torch: ModuleType, with_cuda: bool, path: str) -> None:
    check_compiler()
    if not shutil.which('ninja', path=path):
        raise UserError('ninja is missing: pip install ninja.')
    if importlib.util.find_spec('pkg_resources') is None:
        raise UserError(NO_PKG_RESOURCES)
    if with_cuda:
        from torch.utils.cpp_extension import CUDA_HOME

        if torch.version.cuda is None or CUDA_HOME is None:
            raise UserError(
                f'--cuda needs a CUDA build of torch (this is {torch.__version__}) and a CUDA '
                'toolkit (nvcc, CUDA_HOME): install what is missing, or leave --cuda out.'
            )
    elif torch.version.cuda is not None:
        print('Building the ops for CPUs alone; --cuda adds those for GPUs.')


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        if not any(re.match(r'mmcv/_ext\..*so$', name) for name in archive.namelist()):
            raise UserError(
                f'{wheel.name} came out without compiled ops and is not kept: the reason is in '
                f'{wheel.parent.parent / "build.log"}.'
            )


def cache_folder() -> Path:
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(os.environ.get('MMINLINE_CACHE') or Path(base, 'mminline')).expanduser()


def wheel_folder(requirement: str, with_cuda: bool) -> Path:
    """Folder of the cache for a wheel that fits the installed torch."""
    return cache_folder() / wheel_key(requirement, import_torch().__version__, with_cuda)


def wheel_key(requirement: str, torch_version: str, with_cuda: bool) -> str:
    """Name all that the compiled code depends on; it becomes the name of a folder."""
    ops = 'cuda' if with_cuda else 'cpu'
    python = f'cp{sys.version_info.major}{sys.version_info.minor}'
    name = requirement.replace('==', '-')
    return f'{name}_{ops}_torch-{torch_version}_{python}_{sysconfig.get_platform()}'


def compile_progress() -> Callable[[str], None]:
    """Report ninja's ``[12/77]``: on a terminal in one line, elsewhere at every tenth part."""
    reported = 0

    def report(line: str) -> None:
        nonlocal reported
        if match := re.match(r'\s*\[(\d+)/(\d+)\]', line):
            done, total = map(int, match.groups())
            show_status(f'{done} of {total} files')
            if not sys.stdout.isatty() and done * 10 // total > reported:
                reported = done * 10 // total
                print(f'  {done} of {total} files', flush=True)

    return report


if __name__ == '__main__':
    with user_errors('build_mmcv'):
        main()
