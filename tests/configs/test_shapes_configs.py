"""Configs for Shapes: they learn, and name what the data set holds."""

import json
from pathlib import Path

import numpy as np
import pytest
from mmengine.runner import Runner

from helpers.shipped_configs import CONFIGS, load
from mminline.datasets import CLASSES, PALETTE, SEMANTIC_CLASSES, SEMANTIC_PALETTE, write_shapes

pytestmark = pytest.mark.slow

SHAPES = sorted(path.stem for path in CONFIGS.glob('*/*_shapes.py'))


@pytest.fixture(scope='module')
def shapes(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('data') / 'shapes'
    write_shapes(root, train=8, val=6, size=64)
    return root


@pytest.mark.parametrize('stem', SHAPES)
def test_a_short_training_lowers_the_loss(stem, shapes, tmp_path):
    config = load(stem)
    config.work_dir = str(tmp_path)
    config.train_dataloader.update(batch_size=4, num_workers=0, persistent_workers=False)
    config.train_dataloader.dataset.data_root = str(shapes)
    config.train_cfg = dict(type='IterBasedTrainLoop', max_iters=12)
    config.val_cfg = config.val_dataloader = config.val_evaluator = None
    config.default_hooks.logger.interval = config.log_processor.window_size = 1
    config.visualizer.name = stem  # mmengine goes on with an older one of the same name
    config.param_scheduler = None
    if stem.startswith('retinanet'):
        # At the rate of its recipe, without the warm-up, its loss jumps from 2 to 20.
        config.optim_wrapper.optimizer.lr = 5e-4
    config.randomness = dict(seed=0)

    Runner.from_cfg(config).train()

    (log,) = tmp_path.glob('*/vis_data/scalars.json')
    losses = [json.loads(line)['loss'] for line in log.read_text().splitlines()]
    assert len(losses) == 12
    assert np.mean(losses[-3:]) < 0.85 * np.mean(losses[:3])


def test_configs_name_and_colour_classes_as_the_data_set_does():
    for stem in SHAPES:
        semantic = stem.startswith(('semantic', 'upernet'))
        classes, palette = (SEMANTIC_CLASSES, SEMANTIC_PALETTE) if semantic else (CLASSES, PALETTE)
        config = load(stem)
        for split in ('train', 'val', 'test'):
            metainfo = config[f'{split}_dataloader'].dataset.metainfo
            assert tuple(metainfo.classes) == classes
            assert tuple(map(tuple, metainfo.palette)) == palette
