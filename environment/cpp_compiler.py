"""C++ compiler that builds mmcv: its checks, its flags, torch's headers precompiled."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from errors import UserError


def compiler(environment: dict[str, str]) -> list[str]:
    """Command with which torch compiles C++."""
    return shlex.split(environment.get('CXX') or 'c++')


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


def is_gcc(environment: dict[str, str]) -> bool:
    command = [*compiler(environment), '-dM', '-E', '-x', 'c++', os.devnull]
    macros = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    return '__GNUC__' in macros and '__clang__' not in macros


def setuptools_flags(environment: dict[str, str]) -> list[str]:
    """Ask setuptools for the flags with which it compiles extensions."""
    code = (
        'import setuptools, distutils.ccompiler, distutils.sysconfig\n'
        'compiler = distutils.ccompiler.new_compiler()\n'
        'distutils.sysconfig.customize_compiler(compiler)\n'
        'print(*compiler.compiler_so[1:], sep="\\n")'
    )
    command = [sys.executable, '-I', '-W', 'ignore', '-c', code]
    return subprocess.check_output(command, env=environment, text=True).splitlines()


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
