"""Configs of a comparison: kinds differ in their attention and in nothing else."""

from pathlib import Path

import pytest
import torch

from helpers.shipped_configs import CONFIGS
from mminline.apis import init_model
from mminline.comparison import KINDS, make_config
from mminline.layers import InLineAttention

BASE = CONFIGS / 'segmentation' / 'semantic-fpn_inline-pvt-nano_shapes.py'


def build(kind: str) -> torch.nn.Module:
    """Build the model of a kind."""
    return init_model(make_config(BASE, kind, 0, 10, 'data', 64, 'out'), device='cpu')


@pytest.mark.parametrize(
    ('kind', 'options'),
    [
        ('inline', (True, True, 'identity')),
        ('inline-no-local', (True, False, 'identity')),
        ('linear', (False, True, 'relu')),
        ('linear-no-local', (False, False, 'relu')),
    ],
)
def test_kinds_differ_in_their_attention(kind, options):
    layers = [layer for layer in build(kind).modules() if isinstance(layer, InLineAttention)]

    assert len(layers) == 8
    for layer in layers:
        has_local = layer.local_kernel is not None
        assert (layer.injective, has_local, layer.feature_map) == options


def test_kinds_differ_in_nothing_else():
    sizes = {
        kind: sum(parameter.numel() for parameter in build(kind).parameters())
        for kind in ('inline', 'inline-no-local', 'linear', 'linear-no-local', 'softmax')
    }

    assert sizes['inline'] == sizes['linear']
    assert sizes['inline-no-local'] == sizes['linear-no-local'] == sizes['softmax']


@pytest.mark.parametrize('kind', KINDS)
def test_all_kinds_have_the_same_budget_and_data(kind):
    config = make_config(BASE, kind, 3, 50, Path('data'), 96, Path('out'))

    assert config.train_cfg.max_iters == config.param_scheduler[-1].end == 50
    assert config.randomness.seed == 3
    assert config.work_dir == 'out'
    assert config.model.data_preprocessor.size == (96, 96)
    for split in ('train', 'val', 'test'):
        dataset = config[f'{split}_dataloader'].dataset
        assert dataset.data_root == 'data'
        assert [step.scale for step in dataset.pipeline if step.type == 'Resize'] == [(96, 96)]
