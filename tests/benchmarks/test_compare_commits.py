import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compare(old, new, *options, cwd=None):
    program = [sys.executable, ROOT / 'benchmarks' / 'compare_commits.py', old, new]
    command = [*program, '--quick', '--threads', '1', '--repeats', '2', *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)


@pytest.fixture
def copy(tmp_path):
    """Another checkout."""
    folder = tmp_path / 'copy'
    shutil.copytree(ROOT / 'mminline', folder / 'mminline')
    return folder


def test_checkouts_are_measured_with_their_own_sources(copy, tmp_path):
    # From a folder with a third mminline, which nobody asked for.
    wrong = tmp_path / 'mminline' / '__init__.py'
    wrong.parent.mkdir()
    wrong.write_text('raise RuntimeError("the wrong mminline")')
    done = compare(copy, ROOT, '--out', tmp_path, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / 'compare_commits.json').read_text())
    assert [checkout['source'] for checkout in results['checkouts']] == [str(copy), str(ROOT)]
    names = [case['name'].split(',')[0] for case in results['cases']]
    layers = [f'Layer of stage {stage}' for stage in (1, 2, 3, 4)]
    assert names == [*layers, 'PVT-T', 'Swin-T', 'Training step of PVT-T']
    for case in results['cases']:
        old, new = case['candidates']
        assert (old['name'], new['name']) == ('old', 'new')
        assert new['difference'] < 1e-5
        assert old['ratio'] == 1
        assert len(old['seconds']) == len(new['seconds']) == 2
        assert min(old['peak_bytes'], new['peak_bytes']) > 0
        assert f'| {case["name"]} ' in done.stdout


def test_results_that_differ_end_the_program_before_the_measurement(copy, tmp_path):
    execution = copy / 'mminline' / 'execution' / '__init__.py'
    execution.write_text(f'{execution.read_text()}\nrun = lambda block, x_BLC, *_: x_BLC\n')
    done = compare(ROOT, copy, '--out', tmp_path)

    assert done.returncode == 1
    assert 'old and new have to agree within 1e-05 of the largest value' in done.stderr
    assert 'memory' not in done.stderr
    assert not (tmp_path / 'compare_commits.json').exists()


def test_folder_without_mminline_is_refused(tmp_path):
    done = compare(tmp_path, tmp_path)

    assert done.returncode == 1
    assert f'{tmp_path} has no mminline' in done.stderr
