"""Build a wheel of mmcv with its compiled ops, for the torch of the Python that runs this.

mmdet and mmseg need mmcv < 2.2, of which no wheels exist beyond torch 2.1, and a plain
`pip install mmcv` builds out of sight of the installed torch and leaves the ops out.
This builds against the installed torch, in a fraction of the usual time: without debug
information, and with torch's headers parsed once instead of once per file (gcc, CPU ops).

Finished wheels are kept in $MMINLINE_CACHE, else in mminline/ of $XDG_CACHE_HOME or ~/.cache,
one for each mmcv, torch, Python and platform. Its path is printed, unless --out says where to:

    python tools/build_mmcv.py --out wheels && pip install wheels/mmcv-*.whl
"""

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import _support
from _support import NO_PKG_RESOURCES, UserError

MMCV_VERSION = '2.1.0'
# Naming CFLAGS makes setuptools drop its own flags, so the optimisation level has to be here.
OPTIMISATION = '-O2 -g0 -DNDEBUG -fwrapv'
BUILD_GIGABYTES = 2.0
JOB_GIGABYTES = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--mmcv-version', default=MMCV_VERSION, help='default: %(default)s')
    parser.add_argument(
        '--cuda', action='store_true', help='the ops for GPUs too (needs nvcc and a CUDA torch)'
    )
    parser.add_argument(
        '--jobs', type=int, help='compilers at a time (default: what cores and memory allow)'
    )
    parser.add_argument('--out', type=Path, help='folder that gets a copy of the wheel')
    options = parser.parse_args()
    wheel = build(options.mmcv_version, options.cuda, options.jobs or default_jobs())
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        shutil.copy2(wheel, options.out)
    else:
        print(wheel)


def build(version: str, with_cuda: bool, jobs: int) -> Path:
    """Return the wheel from the cache, built first if it is not there."""
    torch = import_torch()
    folder = cache_folder() / wheel_key(version, torch.__version__, with_cuda)
    folder.mkdir(parents=True, exist_ok=True)
    with _support.lock(folder / 'lock', 'Another build of this wheel runs: waiting for it.'):
        if wheels := sorted(folder.glob('mmcv-*.whl')):
            print(f'mmcv {version} was built before, in {folder}.', flush=True)
            return wheels[0]
        environment = build_environment(with_cuda, jobs)
        check_tools(torch, with_cuda, environment['PATH'])
        _support.check_disk(folder, BUILD_GIGABYTES)
        for leftover in folder.glob('build-*/'):  # of a killed build
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix='build-', dir=folder) as work:
            wheel = compile_wheel(version, Path(work), environment)
            check_wheel(wheel)
            # A wheel gets its place when it is whole: no kill can leave a broken one there.
            return wheel.replace(folder / wheel.name)


def compile_wheel(version: str, work: Path, environment: dict[str, str]) -> Path:
    start = time.perf_counter()
    print(f'Compiling mmcv {version} with {environment["MAX_JOBS"]} jobs.', flush=True)
    header = precompile_header(work, environment)
    if header:
        environment['CFLAGS'] += f' -include {shlex.quote(str(header))}'
    # pip unpacks and compiles below TMPDIR, so the next build finds what a killed one leaves.
    environment['TMPDIR'] = str(work)
    command = [sys.executable, '-I', '-m', 'pip', 'wheel', f'mmcv=={version}', '--verbose']
    # The cache of pip knows nothing of torch's version; build isolation would hide torch.
    command += ['--no-binary', 'mmcv', '--no-cache-dir', '--no-build-isolation', '--no-deps']
    command += ['--wheel-dir', str(work)]
    _support.run_logged(command, work.parent / 'build.log', environment, compile_progress())
    print(f'Compiled mmcv {version} in {time.perf_counter() - start:.0f} s.', flush=True)
    return next(work.glob('mmcv*.whl'))


def precompile_header(work: Path, environment: dict[str, str]) -> Path | None:
    """Have gcc parse torch's headers once, with exactly the flags of the extension.

    gcc takes the parsed form where flags and macros agree and the text where they do not: a
    wrong guess costs time, never correctness.
    """
    if environment['FORCE_CUDA'] == '1' or not is_gcc(environment):
        print('No precompiled header (that needs gcc and a CPU build): this takes longer.')
        return None
    from torch.utils.cpp_extension import include_paths

    header = work / 'torch_types.h'
    header.write_text('#include <torch/types.h>\n')
    includes = [f'-I{path}' for path in (*include_paths(), sysconfig.get_path('include'))]
    macros = ['-DTORCH_API_INCLUDE_EXTENSION_H', '-DTORCH_EXTENSION_NAME=_ext']
    command = [*compiler(environment), *setuptools_flags(environment), *includes, *macros]
    command += ['-std=c++17', '-x', 'c++-header', str(header), '-o', f'{header}.gch']
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    if finished.returncode:
        print('No precompiled header, so this takes longer:', finished.stderr.strip()[-300:])
        return None
    return header


def setuptools_flags(environment: dict[str, str]) -> list[str]:
    """The flags with which setuptools compiles extensions, as it says itself."""
    code = (
        'import setuptools, distutils.ccompiler, distutils.sysconfig\n'
        'compiler = distutils.ccompiler.new_compiler()\n'
        'distutils.sysconfig.customize_compiler(compiler)\n'
        'print(*compiler.compiler_so[1:], sep="\\n")'
    )
    command = [sys.executable, '-I', '-W', 'ignore', '-c', code]
    return subprocess.check_output(command, env=environment, text=True).splitlines()


def compiler(environment: dict[str, str]) -> list[str]:
    """The command with which torch compiles C++."""
    return shlex.split(environment.get('CXX') or 'c++')


def is_gcc(environment: dict[str, str]) -> bool:
    command = [*compiler(environment), '-dM', '-E', '-x', 'c++', os.devnull]
    macros = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    return '__GNUC__' in macros and '__clang__' not in macros


def build_environment(with_cuda: bool, jobs: int) -> dict[str, str]:
    environment = _support.clean_environment()
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
    """As many compilers as there are cores, and memory for them."""
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


def check_compiler() -> None:
    name = compiler(dict(os.environ))[0]
    if not shutil.which(name):
        raise UserError(
            f'No C++ compiler was found (looked for {name}): install one (Debian, Ubuntu: '
            'apt install g++; Fedora: dnf install gcc-c++), or name yours in CXX.'
        )
    if not Path(sysconfig.get_path('include'), 'Python.h').exists():
        raise UserError(
            "Python's C headers are missing: install them (Debian, Ubuntu: apt install "
            'python3-dev; Fedora: dnf install python3-devel).'
        )


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


def wheel_key(version: str, torch_version: str, with_cuda: bool) -> str:
    """Name all that the compiled code depends on; it becomes the name of a folder."""
    ops = 'cuda' if with_cuda else 'cpu'
    python = f'cp{sys.version_info.major}{sys.version_info.minor}'
    return f'mmcv-{version}_{ops}_torch-{torch_version}_{python}_{sysconfig.get_platform()}'


def compile_progress() -> Callable[[str], None]:
    """Report ninja's ``[12/77]``: on a terminal in one line, elsewhere at every tenth part."""
    reported = 0

    def report(line: str) -> None:
        nonlocal reported
        if match := re.match(r'\s*\[(\d+)/(\d+)\]', line):
            done, total = map(int, match.groups())
            _support.show_status(f'{done} of {total} files')
            if not sys.stdout.isatty() and done * 10 // total > reported:
                reported = done * 10 // total
                print(f'  {done} of {total} files', flush=True)

    return report


if __name__ == '__main__':
    with _support.user_errors('build_mmcv'):
        main()
