"""Every tool explains itself, and stands alone: mim runs it from a folder that is no package."""

import runpy
import shutil
import sys

import pytest

from helpers.tiny_configs import TOOLS

NAMES = (
    'convert_checkpoint', 'demo', 'get_flops', 'infer', 'make_shapes', 'model_zoo', 'test', 'train',
)  # fmt: skip


@pytest.mark.parametrize('name', NAMES)
def test_a_tool_alone_prints_help(name, tmp_path, monkeypatch, capsys):
    shutil.copy(TOOLS / f'{name}.py', tmp_path)
    monkeypatch.setattr(sys, 'argv', [f'{name}.py', '--help'])

    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(tmp_path / f'{name}.py'), run_name='__main__')

    assert end.value.code == 0
    text = capsys.readouterr().out
    assert f'usage: {name}.py' in text
    assert len(text.splitlines()) > 8
    assert '--gpus' not in text  # mim would then pass it
