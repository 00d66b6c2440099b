"""Tools stand alone: after an install mim runs each from a folder that is no package."""

import ast
from pathlib import Path

import pytest

from helpers.shipped_configs import ROOT

TOOLS = sorted((ROOT / 'tools').glob('*.py'))


@pytest.mark.parametrize('path', TOOLS, ids=lambda path: path.stem)
def test_a_tool_imports_nothing_beside_it(path: Path):
    neighbours = {file.stem for file in path.parent.iterdir()}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.append(node.module)
        assert not neighbours & {name.partition('.')[0] for name in names}
