"""The notebook runs from its first cell to its last, and its model learns."""

import json
import warnings
from pathlib import Path

import matplotlib
import pytest

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[2] / 'docs' / 'tutorial.ipynb'


def code_cells() -> list[dict]:
    cells = json.loads(NOTEBOOK.read_text())['cells']
    return [cell for cell in cells if cell['cell_type'] == 'code']


def test_the_cells_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    matplotlib.use('Agg')
    names = {'__name__': 'tutorial'}

    with warnings.catch_warnings():
        for number, cell in enumerate(code_cells()):
            exec(compile(''.join(cell['source']), f'{NOTEBOOK.name}[{number}]', 'exec'), names)
    matplotlib.pyplot.close('all')

    losses = names['losses']
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert names['scores'].shape == (1, 7, 64, 96)


def test_what_is_stored_is_small_and_no_error():
    outputs = [output for cell in code_cells() for output in cell['outputs']]

    assert all(output['output_type'] != 'error' for output in outputs)
    assert NOTEBOOK.stat().st_size < 300_000
