"""``tools/convert_checkpoint.py``: its report, what it writes, and what it refuses."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers import golden
from helpers.tiny import SIZES, build
from mminline.checkpoints import load_pretrained
from mminline.models import InLinePVT

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / 'tools' / 'convert_checkpoint.py'


def run(monkeypatch, *args) -> None:
    """Run the tool in this process, as from the command line."""
    monkeypatch.setattr(sys, 'argv', [TOOL.name, *map(str, args)])
    runpy.run_path(str(TOOL), run_name='__main__')


@pytest.fixture
def official(tmp_path):
    shapes = golden.official_shapes('inline-swin-s')
    path = tmp_path / 'official.pth'
    torch.save({'model': {key: torch.ones(1).expand(shape) for key, shape in shapes.items()}}, path)
    return path


def test_the_report_names_the_model_and_what_becomes_of_every_key(official, tmp_path):
    result = subprocess.run(
        [sys.executable, TOOL, official, tmp_path / 'ours.pth'],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    report = [line.split() for line in result.stdout.splitlines()]
    assert ['kind', 'official', 'InLine-Swin'] in report
    assert ['model', 'swin-small'] in report
    assert ['9', 'layers.*.blocks.*.attn_mask', 'dropped'] in report
    assert ['6', 'layers.*.downsample.norm', 'stages.*.embed.norm'] in report
    assert ['read', '370', 'tensors'] in report
    assert 'written     337 tensors, 49,022,760 parameters' in result.stdout

    written = torch.load(tmp_path / 'ours.pth', weights_only=True)
    assert len(written['state_dict']) == 337
    assert written['meta']['model'] == 'swin-small'
    assert {path.name for path in tmp_path.iterdir()} == {'official.pth', 'ours.pth'}


def test_a_bad_file_is_one_sentence_and_a_failure(tmp_path):
    page = tmp_path / 'page.pth'
    page.write_text('<html>Not found</html>')
    result = subprocess.run(
        [sys.executable, TOOL, page, tmp_path / 'ours.pth'],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1
    assert result.stdout == ''
    assert 'Traceback' not in result.stderr
    assert result.stderr.splitlines()[-1].startswith('convert_checkpoint: a checkpoint has to be')
    assert not (tmp_path / 'ours.pth').exists()


def test_a_dry_run_writes_nothing(official, tmp_path, monkeypatch, capsys):
    run(monkeypatch, official, tmp_path / 'ours.pth', '--dry-run')
    assert 'swin-small' in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ['official.pth']


def test_queries_and_keys_are_reported_as_joined(tmp_path, monkeypatch, capsys):
    shapes = golden.official_shapes('inline-pvt-t')
    path = tmp_path / 'official.pth'
    torch.save({key: torch.zeros(1).expand(shape) for key, shape in shapes.items()}, path)
    run(monkeypatch, path, tmp_path / 'ours.pth', '--dry-run')
    report = [line.split() for line in capsys.readouterr().out.splitlines()]
    joined = ['stages.*.blocks.*.attn.qkv', '(joined)']
    assert ['16', 'block*.*.attn.q', *joined] in report
    assert ['16', 'block*.*.attn.kv', *joined] in report
    assert ['2', 'head', 'dropped'] in report


def test_the_backbone_of_a_detector_is_kept_and_loads(tmp_path, monkeypatch, capsys):
    saved = build(InLinePVT).state_dict()
    detector = {f'backbone.{key}': value for key, value in saved.items()}
    torch.save({'state_dict': {**detector, 'neck.bias': torch.ones(2)}}, tmp_path / 'detector.pth')

    run(monkeypatch, tmp_path / 'detector.pth', tmp_path / 'backbone.pth')

    assert "mminline under 'backbone.'" in capsys.readouterr().out
    loaded = InLinePVT(SIZES)
    load_pretrained(loaded, tmp_path / 'backbone.pth')
    assert all(torch.equal(value, saved[key]) for key, value in loaded.state_dict().items())


@pytest.mark.parametrize(
    ('destination', 'message'),
    [
        ('official.pth', 'DST has to be another file than SRC'),
        ('missing/ours.pth', 'DST has to be in a folder that exists'),
    ],
)
def test_a_bad_destination_is_refused(destination, message, official, tmp_path, monkeypatch):
    before = official.read_bytes()
    with pytest.raises(SystemExit, match=message):
        run(monkeypatch, official, tmp_path / destination)
    assert official.read_bytes() == before


def test_a_write_that_fails_leaves_nothing_behind(official, tmp_path, monkeypatch):
    def fail(contents, path):
        Path(path).write_bytes(b'half')
        raise OSError('disk full')

    (tmp_path / 'ours.pth').write_bytes(b'old')
    monkeypatch.setattr(torch, 'save', fail)
    with pytest.raises(SystemExit, match='disk full'):
        run(monkeypatch, official, tmp_path / 'ours.pth')
    assert (tmp_path / 'ours.pth').read_bytes() == b'old'
    assert len(list(tmp_path.iterdir())) == 2


def test_two_backbones_in_one_file_are_refused(tmp_path, monkeypatch):
    weights = {f'{part}.stages.0.blocks.0.x': torch.ones(1) for part in ('teacher', 'student')}
    torch.save(weights, tmp_path / 'pair.pth')
    with pytest.raises(SystemExit, match=r'one backbone, got several: teacher\., student\.'):
        run(monkeypatch, tmp_path / 'pair.pth', tmp_path / 'ours.pth')
