"""Tools stand alone: after an install mim runs each from a folder that is no package."""

import ast
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from helpers.tiny_configs import TOOLS

PATHS = sorted(path for path in TOOLS.iterdir() if path.is_file())


def test_there_are_no_private_modules():
    assert PATHS
    assert all(path.suffix == '.py' and not path.name.startswith('_') for path in PATHS)


@pytest.mark.parametrize('path', PATHS, ids=lambda path: path.stem)
def test_a_tool_imports_nothing_beside_it(path: Path):
    neighbours = {file.stem for file in path.parent.iterdir()}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.append(node.module)
        assert not neighbours & {name.partition('.')[0] for name in names}


@pytest.mark.parametrize('path', PATHS, ids=lambda path: path.stem)
def test_a_tool_in_a_folder_of_its_own_prints_help(path, tmp_path, monkeypatch, capsys):
    shutil.copy(path, tmp_path)
    monkeypatch.setattr(sys, 'argv', [path.name, '--help'])

    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(tmp_path / path.name), run_name='__main__')

    assert end.value.code == 0
    text = capsys.readouterr().out
    assert f'usage: {path.name}' in text
    assert len(text.splitlines()) > 8
    assert '--gpus' not in text  # mim would then pass it
