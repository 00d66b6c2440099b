"""``benchmarks/padding.py``: configs that differ in the backbone, runs that are kept, tables."""

import json
import sys
from pathlib import Path

import pytest
from mmengine.registry import DATASETS, MODELS, init_default_scope

from mminline.datasets import write_shapes

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def padding(monkeypatch):
    """Import the program and what lies beside it; forget them afterwards."""
    names = [path.stem for path in BENCHMARKS.glob('*.py')]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)
    import padding

    monkeypatch.setattr(padding, 'SCENES', dict(train=6, val=3, size=(64, 128)))
    yield padding
    for name in names:
        sys.modules.pop(name, None)


def test_configs_differ_in_the_backbone_and_leave_scenes_as_large_as_they_are(padding, tmp_path):
    from padding_configs import BACKBONES, IGNORED_BEHIND, make_config

    write_shapes(tmp_path / 'shapes', **padding.SCENES)
    configs = {
        model: make_config(model, 1, 50, tmp_path / 'shapes', tmp_path) for model in BACKBONES
    }
    init_default_scope('mmdet')
    for model, config in configs.items():
        backbone = MODELS.build(config.model).backbone
        assert getattr(backbone, 'ignore_padding', None) == {
            'inline': True,
            IGNORED_BEHIND: True,
            'inline, padding computed': False,
        }.get(model)
        others = dict(config.to_dict(), model=None)
        hooks = others.pop('custom_hooks', [])
        assert hooks == [dict(type='mminline.IgnorePaddingHook')] * (model == IGNORED_BEHIND)
        assert others == dict(configs['inline'].to_dict(), model=None)
    for split in ('train', 'test'):
        dataset = DATASETS.build(config[f'{split}_dataloader'].dataset)
        shapes = {tuple(dataset[index]['inputs'].shape) for index in range(len(dataset))}
        assert len(shapes) == len(dataset)


def test_a_run_is_trained_once_and_tested_with_each_batch_size(padding, tmp_path, monkeypatch):
    write_shapes(tmp_path / 'shapes', **padding.SCENES)
    padding.run('inline', 0, 2, [1, 3], tmp_path)
    folder = tmp_path / 'inline' / 'seed_0'
    result = json.loads((folder / 'result.json').read_text())
    assert list(result['scores']) == ['1', '3']
    written = (folder / 'iter_2.pth').stat().st_mtime_ns

    padding.run('inline', 0, 2, [2], tmp_path)
    again = json.loads((folder / 'result.json').read_text())
    assert list(again['scores']) == ['2']
    assert again['seconds'] == result['seconds'] > 0  # of the training, which is not repeated
    assert (folder / 'iter_2.pth').stat().st_mtime_ns == written
    monkeypatch.setattr(padding, 'test', None)  # not called again
    padding.run('inline', 0, 2, [2], tmp_path)

    from mmengine.config import Config
    from padding_parts import compare_parts

    config = Config.fromfile(folder / 'config.py')
    for ignores in (True, False):
        config.model.backbone.ignore_padding = ignores
        table = compare_parts(config, folder / 'iter_2.pth', batch_size=3)
        backbone = [line for line in table.splitlines() if line.startswith('| backbone')]
        assert [' 0.0% ' in line for line in backbone] == [ignores] * 4
    config.model.backbone.ignore_padding = True
    config.custom_hooks = [dict(type='mminline.IgnorePaddingHook')]
    table = compare_parts(config, folder / 'iter_2.pth', batch_size=3)
    assert all(' 0.0% ' in line for line in table.splitlines()[2:])


def test_the_table_has_the_spread_over_batch_sizes(padding):
    scores = {
        size: {'box AP': box, 'mask AP': 2 * box} for size, box in (('1', 21.0), ('16', 25.7))
    }
    table = padding.score_table([dict(model='inline', seed=0, scores=scores, seconds=61.0)])
    lines = [[cell.strip() for cell in line.split('|')[1:-1]] for line in table.splitlines()]

    assert lines[0] == ['model', 'seed', 'metric', 'batch 1', 'batch 16', 'spread', 'training']
    assert lines[2] == ['inline', '0', 'box AP', '21.0', '25.7', '4.7', '61 s']
    assert lines[3] == ['inline', '0', 'mask AP', '42.0', '51.4', '9.4', '61 s']
