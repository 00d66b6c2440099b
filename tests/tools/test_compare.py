"""``tools/compare_attention.py``: what it trains, what it keeps, and what it refuses."""

import json
import re
from pathlib import Path

import mmcv
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.shipped_configs import CONFIGS
from mminline.datasets import write_shapes

pytestmark = pytest.mark.slow


@pytest.fixture
def compare(shapes, run, tmp_path, monkeypatch, capsys):
    """Run the tool on a few scenes, in a folder of its own; return what it printed."""
    monkeypatch.chdir(tmp_path)

    def run_compare(*arguments: object) -> str:
        run('compare_attention.py', '--root', shapes, '--out', 'out', *arguments)
        return capsys.readouterr().out

    return run_compare


def test_runs_leave_a_table_pictures_and_models(compare):
    printed = compare('--kinds', 'inline', 'softmax', '--seeds', 0, 1, '--iterations', 2)

    rows = json.loads(Path('out/comparison.json').read_text())
    assert [row['kind'] for row in rows] == ['inline', 'softmax']
    for row in rows:
        assert row['mIoU'] == pytest.approx(sum(row['scores']) / 2)
        assert row['deviation'] == pytest.approx(abs(row['scores'][0] - row['scores'][1]) / 2**0.5)
        assert all(0 <= score <= 1 for score in row['scores'])
        assert re.search(rf'{row["kind"]} +{row["mIoU"]:.3f} +{row["deviation"]:.3f} ', printed)
        assert [[place for place, _ in curve] for curve in row['curves']] == [[1, 2], [1, 2]]
        assert [curve[-1][1] for curve in row['curves']] == row['scores']
        assert row['shape'] == [64, 64]
        assert min(row['gmacs'], row['image_seconds'], row['megabytes']) > 0
    pairs = zip(rows[1]['scores'], rows[0]['scores'], strict=True)
    assert rows[1]['difference'] == pytest.approx(sum(one - other for one, other in pairs) / 2)
    for picture in ('comparison.png', 'curves.png'):
        assert mmcv.imread(f'out/{picture}').std() > 0
    for kind in ('inline', 'softmax'):
        for seed in (0, 1):
            folder = Path('out', kind, f'seed_{seed}')
            config = Config.fromfile(folder / 'config.py')
            init_default_scope(config.default_scope)
            checkpoint = torch.load(folder / 'model.pth')
            assert checkpoint['meta']['iter'] == 2
            assert list(folder.glob('*/vis_data/scalars.json'))
            MODELS.build(config.model).load_state_dict(checkpoint['state_dict'])


def test_a_detector_of_the_user_runs_in_two_processes(shapes, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    root = f'{shapes}/'
    options = [f'{split}_dataloader.dataset.data_root={root}' for split in ('train', 'val')]
    options += [f'val_evaluator.ann_file={root}annotations/instances_val.json']
    options += ['train_dataloader.batch_size=1', 'train_dataloader.num_workers=0']
    options += ['train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0']
    options += ['val_dataloader.persistent_workers=False']
    arguments = ['--kinds', 'inline', 'hydra', '--seeds', 0, '--iterations', 2, '--jobs', 2]
    config = CONFIGS / 'detection' / 'mask-rcnn_inline-pvt-nano_fpn_shapes.py'

    run('compare_attention.py', config, *arguments, '--out', 'out', '--cfg-options', *options)

    printed = capsys.readouterr().out
    assert re.search(r'\[2/2\] \w+, seed 0: \d+ s', printed)
    rows = json.loads(Path('out/comparison.json').read_text())
    assert [row['metric'] for row in rows] == ['coco/segm_mAP'] * 2
    assert Path('out/hydra/seed_0/model.pth').is_file()


def test_finished_runs_are_kept_and_others_run(compare):
    arguments = ['--kinds', 'inline', '--iterations', 2, '--seeds']
    compare(*arguments, 0)
    model = Path('out/inline/seed_0/model.pth')
    written = model.stat().st_mtime_ns

    printed = compare(*arguments, 0, 1)
    assert 'inline, seed 0' not in printed
    assert 'inline, seed 1' in printed
    assert model.stat().st_mtime_ns == written

    Path('out/inline/seed_0/result.json').unlink()  # as an interrupted run has none
    assert 'inline, seed 0' in compare(*arguments, 0, 1)
    assert model.stat().st_mtime_ns > written


def test_the_same_seed_gives_the_same_score(compare):
    arguments = ['--kinds', 'inline-no-local', '--iterations', 2, '--seeds', 3]
    compare(*arguments)
    path = Path('out/inline-no-local/seed_3/result.json')
    first = json.loads(path.read_text())
    path.unlink()
    compare(*arguments)

    assert json.loads(path.read_text())['curve'] == first['curve']


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--level', 'cluttered'], 'holds scenes of level plain and size 64, not of cluttered'),
        (['--size', 128], 'holds scenes of level plain and size 64, not of plain and 128'),
    ],
)
def test_data_of_another_kind_is_refused(compare, arguments, message):
    with pytest.raises(SystemExit, match=message):
        compare(*arguments)


def test_a_run_with_other_settings_is_not_mixed_in(compare):
    compare('--kinds', 'inline', '--seeds', 0, '--iterations', 2)

    with pytest.raises(SystemExit, match='other iterations or other data: take another --out'):
        compare('--kinds', 'inline', '--seeds', 0, '--iterations', 3)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--iterations', 1], '--iterations has to be at least 2, got 1'),
        (['--jobs', 0], '--jobs has to be at least 1, got 0'),
        (['--level', 'hard'], 'invalid choice'),
        (['config.py'], '--root belongs to Shapes, and CONFIG has data of its own'),
    ],
)
def test_a_bad_argument_is_refused(compare, arguments, message, capsys):
    with pytest.raises(SystemExit, match='2'):
        compare(*arguments)
    assert message in capsys.readouterr().err


def test_a_bad_kind_or_metric_is_refused(compare):
    with pytest.raises(SystemExit, match="compare_attention: a kind has to be .*'quadratic'"):
        compare('--kinds', 'inline', 'quadratic')
    with pytest.raises(SystemExit, match=r"metric has to be one of \['aAcc', .*got metric='mAP'"):
        compare('--kinds', 'inline', '--seeds', 0, '--iterations', 2, '--metric', 'mAP')


def test_data_that_is_not_there_is_drawn(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        'mminline.comparison.compare.write_shapes',
        lambda root, **look: write_shapes(root, train=2, val=1, **look),
    )

    run('compare_attention.py', '--kinds', 'inline', '--seeds', 0, '--iterations', 2)

    record = json.loads(Path('data/shapes-plain-64/dataset.json').read_text())
    assert (record['level'], record['size']) == ('plain', 64)
    assert Path('work_dirs/compare_attention/comparison.png').is_file()
