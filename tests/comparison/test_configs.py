"""Configs of a comparison: kinds differ in their attention and in nothing else."""

from pathlib import Path

import pytest
import torch

from helpers.shipped_configs import CONFIGS
from mminline.apis import init_model
from mminline.comparison import KINDS, make_config
from mminline.comparison.kinds import parse_kind
from mminline.layers import InLineAttention, SoftmaxAttention

pytestmark = pytest.mark.slow

DETECTOR = CONFIGS / 'detection' / 'mask-rcnn_inline-pvt-t_fpn_1x_coco.py'
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
    models = {kind: build(kind) for kind in KINDS if kind != 'softmax-reduced'}
    bare = {
        name: parameter.shape
        for name, parameter in models['softmax'].named_parameters()
        if '.attn.' not in name or '.qkv.' in name or '.proj.' in name
    }
    for kind, model in models.items():
        shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        extra = shapes.keys() - bare.keys()
        assert {name: shapes[name] for name in bare} == bare
        assert all('.attn.local' in name for name in extra)
        convolves = kind in ('inline', 'linear', 'angular', 'enhanced', 'focused', 'mala')
        assert bool(extra) == convolves


def test_softmax_sees_the_whole_map_and_reduced_softmax_is_the_pvt_of_mmdet():
    layers = [layer for layer in build('softmax').modules() if isinstance(layer, SoftmaxAttention)]
    assert [layer.window_size for layer in layers] == [None] * 8
    backbone = build('softmax-reduced').backbone
    assert type(backbone).__name__ == 'PyramidVisionTransformer'
    ratios = [layer.sr_ratio for layer in backbone.modules() if hasattr(layer, 'sr_ratio')]
    assert ratios == [8, 8, 4, 4, 2, 2, 1, 1]


def test_a_kind_can_be_any_layer_with_options():
    assert parse_kind('SoftmaxAttention:window_size=5')['attention'] == dict(
        type='SoftmaxAttention', window_size=5
    )
    kind = 'LinearAttention:feature_map=exp,local_residual=True'
    layer = build(kind).backbone.stages[0].blocks[0].attn
    assert layer.feature_map == 'exp'
    assert layer.local is not None


@pytest.mark.parametrize(
    ('kind', 'message'),
    [
        ('quadratic', "one of .*'inline'.*got 'quadratic'"),
        ('NoSuchAttention', "registered layer.*got 'NoSuchAttention'"),
        ('HydraAttention:head=3', r"\['embed_dims', .*got \['head'\]"),
    ],
)
def test_a_kind_that_is_not_there_is_refused(kind, message):
    with pytest.raises(ValueError, match=message):
        parse_kind(kind)


def test_a_schedule_in_epochs_becomes_one_in_iterations():
    config = make_config(DETECTOR, 'mala', 0, 600, None, None, 'out', evaluations=3)

    assert dict(config.train_cfg) == dict(
        type='IterBasedTrainLoop', max_iters=600, val_interval=200
    )
    warm_up, steps = config.param_scheduler
    assert (warm_up.begin, warm_up.end, warm_up.by_epoch) == (0, 60, False)
    assert (steps.end, steps.milestones, steps.by_epoch) == (600, [400, 550], False)
    assert config.model.backbone.attention.type == 'MagnitudeAwareAttention'
    assert config.model.backbone.get('init_cfg') is None


def test_without_a_budget_the_schedule_is_the_config_s_own():
    config = make_config(DETECTOR, 'inline', 0, None, None, None, 'out')

    assert config.train_cfg.max_epochs == 12
    assert config.param_scheduler[1].milestones == [8, 11]
    assert config.train_dataloader.dataset.data_root == 'data/coco/'


def test_backbones_of_others_are_refused():
    with pytest.raises(ValueError, match="'InLinePVT', .*got 'PyramidVisionTransformer'"):
        make_config(
            CONFIGS / 'detection' / 'mask-rcnn_pvt-t_fpn_1x_coco.py',
            'inline',
            0,
            9,
            None,
            None,
            'out',
        )
    with pytest.raises(ValueError, match="'softmax-reduced' is a kind of InLinePVT"):
        make_config(
            CONFIGS / 'segmentation' / 'upernet_inline-swin-nano_shapes.py',
            'softmax-reduced',
            0,
            9,
            None,
            None,
            'out',
        )


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
