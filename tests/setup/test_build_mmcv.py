"""Builder of mmcv: its cache, its locks, and an answer to each thing that can go wrong."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import build_mmcv
import cpp_compiler
import errors

pytestmark = pytest.mark.slow

WHEEL = 'mmcv-2.1.0-py3-none-any.whl'


@pytest.fixture
def builder(monkeypatch, tmp_path):
    """Builder with an empty cache."""
    monkeypatch.setenv('MMINLINE_CACHE', str(tmp_path / 'cache'))
    return build_mmcv


def write_wheel(folder: Path, with_ops: bool = True) -> Path:
    with zipfile.ZipFile(folder / WHEEL, 'w') as archive:
        archive.writestr('mmcv/__init__.py', '')
        if with_ops:
            archive.writestr('mmcv/_ext.cpython-311-x86_64-linux-gnu.so', 'ops')
    return folder / WHEEL


def test_the_name_of_a_cached_wheel_tells_all_builds_apart(builder):
    keys = {
        builder.wheel_key('mmcv==2.1.0', '2.13.0+cpu', with_cuda=False),
        builder.wheel_key('mmcv==2.1.0', '2.13.0+cu130', with_cuda=False),
        builder.wheel_key('mmcv==2.1.0', '2.13.0+cu130', with_cuda=True),
        builder.wheel_key('mmcv==2.0.1', '2.13.0+cpu', with_cuda=False),
        builder.wheel_key('onedl-mmcv==2.1.0', '2.13.0+cpu', with_cuda=False),
    }

    assert len(keys) == 5
    python = f'cp{sys.version_info.major}{sys.version_info.minor}'
    assert all(python in key and os.uname().machine in key for key in keys)


def test_the_cache_is_where_the_user_wants_it(builder, monkeypatch):
    monkeypatch.setenv('MMINLINE_CACHE', '/mine')
    assert builder.cache_folder() == Path('/mine')
    monkeypatch.delenv('MMINLINE_CACHE')
    monkeypatch.setenv('XDG_CACHE_HOME', '/caches')
    assert builder.cache_folder() == Path('/caches/mminline')
    monkeypatch.delenv('XDG_CACHE_HOME')
    assert builder.cache_folder() == Path.home() / '.cache' / 'mminline'


@pytest.mark.parametrize(
    ('words', 'requirement'),
    [
        ([], 'mmcv==2.1.0'),
        (['--stack', 'onedl'], 'onedl-mmcv==2.3.6'),
        (['--stack', 'onedl', '--mmcv-version', '2.3.5'], 'onedl-mmcv==2.3.5'),
    ],
)
def test_the_stack_says_which_mmcv_is_built(builder, monkeypatch, tmp_path, words, requirement):
    wanted = []

    def compile_wheel(requirement, work, environment):
        wanted.append(requirement)
        return write_wheel(work)

    monkeypatch.setattr(builder, 'compile_wheel', compile_wheel)
    monkeypatch.setattr(sys, 'argv', ['build_mmcv.py', *words, '--out', str(tmp_path / 'out')])
    builder.main()

    assert wanted == [requirement]
    assert (tmp_path / 'out' / WHEEL).exists()
    (folder,) = (tmp_path / 'cache').iterdir()
    assert folder.name.startswith(f'{requirement.replace("==", "-")}_cpu_torch-')


def test_a_cached_wheel_is_found_and_a_missing_one_is_not_compiled(
    builder, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(builder, 'compile_wheel', lambda _, work, __: write_wheel(work))
    monkeypatch.setattr(sys, 'argv', ['build_mmcv.py', '--cached'])
    with pytest.raises(errors.UserError, match=r'mmcv==2\.1\.0 was not compiled for this torch'):
        builder.main()
    assert not (tmp_path / 'cache').exists()

    built = builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)
    builder.main()

    assert capsys.readouterr().out.split() == [str(built)]
    monkeypatch.setattr(sys, 'argv', ['build_mmcv.py', '--cached', '--stack', 'onedl'])
    with pytest.raises(errors.UserError, match='onedl-mmcv'):
        builder.main()


def test_two_builds_at_once_compile_once(builder, monkeypatch):
    compiled = []

    def compile_wheel(requirement, work, environment):
        compiled.append(requirement)
        time.sleep(0.3)
        return write_wheel(work)

    monkeypatch.setattr(builder, 'compile_wheel', compile_wheel)
    with ThreadPoolExecutor() as pool:
        builds = [
            pool.submit(builder.build, 'mmcv==2.1.0', with_cuda=False, jobs=1) for _ in range(2)
        ]
    first, second = (build.result() for build in builds)

    assert compiled == ['mmcv==2.1.0']
    assert first == second and first.exists()


def test_a_killed_build_leaves_no_wheel_and_the_next_one_cleans_up(builder, monkeypatch, tmp_path):
    code = (
        f'import sys; sys.path.insert(0, {str(Path(build_mmcv.__file__).parent)!r})\n'
        'import build_mmcv, os, signal\n'
        'def compile_wheel(requirement, work, environment):\n'
        f'    (work / {WHEEL!r}).write_bytes(b"half")\n'
        '    os.kill(os.getpid(), signal.SIGKILL)\n'
        'build_mmcv.compile_wheel = compile_wheel\n'
        'build_mmcv.build("mmcv==2.1.0", False, 1)'
    )
    killed = subprocess.run([sys.executable, '-c', code])
    cache = tmp_path / 'cache'

    assert killed.returncode == -signal.SIGKILL
    assert not list(cache.glob('*/*.whl')) and list(cache.glob('*/build-*'))
    monkeypatch.setattr(builder, 'compile_wheel', lambda _, work, __: write_wheel(work))
    assert builder.build('mmcv==2.1.0', with_cuda=False, jobs=1).exists()
    assert not list(cache.glob('*/build-*'))


def test_a_wheel_without_ops_is_not_kept(builder, monkeypatch, tmp_path):
    monkeypatch.setattr(builder, 'compile_wheel', lambda _, work, __: write_wheel(work, False))

    with pytest.raises(errors.UserError, match='without compiled ops'):
        builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)
    assert not list((tmp_path / 'cache').glob('*/*.whl'))


def test_a_missing_compiler_is_named_with_its_cure(builder, monkeypatch):
    monkeypatch.setenv('CXX', 'no-such-compiler -O3')

    with pytest.raises(errors.UserError, match=r'looked for no-such-compiler.*apt install g\+\+'):
        builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)


def test_missing_python_headers_are_named_with_their_cure(monkeypatch, tmp_path):
    monkeypatch.setattr(cpp_compiler.sysconfig, 'get_path', lambda name: str(tmp_path))

    with pytest.raises(errors.UserError, match='headers are missing.*python3-dev'):
        cpp_compiler.check_compiler()


def test_a_missing_torch_is_named_with_its_cure(builder, monkeypatch):
    monkeypatch.setitem(sys.modules, 'torch', None)

    with pytest.raises(errors.UserError, match='torch is not installed.*install the torch'):
        builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)


def test_setuptools_without_pkg_resources_is_named_with_its_cure(builder, monkeypatch):
    monkeypatch.setattr(builder.importlib.util, 'find_spec', lambda name: None)

    with pytest.raises(errors.UserError, match='no pkg_resources.*setuptools>=77,<82'):
        builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)


def test_too_little_disk_is_said_before_compiling(builder, monkeypatch):
    monkeypatch.setattr(errors, 'free_gigabytes', lambda folder: 0.5)

    with pytest.raises(errors.UserError, match='0.5 GB free and 2.0 GB are needed'):
        builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)


def test_cuda_ops_need_a_cuda_torch(builder, monkeypatch):
    import torch

    monkeypatch.setattr(torch.version, 'cuda', None)
    with pytest.raises(errors.UserError, match='needs a CUDA build of torch'):
        builder.build('mmcv==2.1.0', with_cuda=True, jobs=1)


def test_an_unreachable_index_is_named_with_its_cure(builder, monkeypatch):
    # Port 9 of the own machine refuses; no other place for packages is left to pip.
    for name, value in {
        'INDEX_URL': 'http://127.0.0.1:9/simple',
        'EXTRA_INDEX_URL': '',
        'FIND_LINKS': '',
        'CONFIG_FILE': os.devnull,
        'RETRIES': '0',
    }.items():
        monkeypatch.setenv(f'PIP_{name}', value)
    monkeypatch.setattr(builder, 'precompile_header', lambda work, environment: None)

    with pytest.raises(errors.UserError, match='package index cannot be reached'):
        builder.build('mmcv==2.1.0', with_cuda=False, jobs=1)


@pytest.mark.parametrize('with_cuda, gcc', [(True, True), (False, False)])
def test_without_gcc_or_with_cuda_it_goes_on_without_header(
    builder, monkeypatch, tmp_path, capsys, with_cuda, gcc
):
    monkeypatch.setattr(cpp_compiler, 'is_gcc', lambda environment: gcc)
    environment = builder.build_environment(with_cuda, jobs=1)

    assert cpp_compiler.precompile_header(tmp_path, environment) is None
    assert 'No precompiled header' in capsys.readouterr().out


def test_a_header_that_does_not_compile_is_said_and_left_out(builder, tmp_path, capsys):
    environment = builder.build_environment(with_cuda=False, jobs=1)
    environment['CFLAGS'] = '-no-such-flag'

    assert cpp_compiler.precompile_header(tmp_path, environment) is None
    assert 'no-such-flag' in capsys.readouterr().out


def test_the_build_is_optimised_parallel_and_with_ops(builder, monkeypatch):
    monkeypatch.setenv('CFLAGS', '-march=native')
    monkeypatch.setenv('PIP_TARGET', '/elsewhere')
    environment = builder.build_environment(with_cuda=False, jobs=3)

    assert environment['MAX_JOBS'] == '3' and environment['MMCV_WITH_OPS'] == '1'
    assert environment['FORCE_CUDA'] == '0' and environment['CUDA_VISIBLE_DEVICES'] == ''
    assert 'PIP_TARGET' not in environment
    flags = cpp_compiler.setuptools_flags(environment)
    assert {'-O2', '-g0', '-fPIC', '-march=native'} <= set(flags)


def test_progress_is_told_in_tenths_where_there_is_no_terminal(builder, capsys):
    report = builder.compile_progress()
    for line in ['building\n', *(f'  [{done}/77] c++ file.cpp\n' for done in range(1, 78))]:
        report(line)

    told = capsys.readouterr().out.splitlines()
    assert len(told) == 10 and told[-1].strip() == '77 of 77 files'
