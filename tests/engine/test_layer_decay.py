"""Layer numbers of the backbones, and learning rates by layer in mmdet's and mmseg's scope."""

import importlib

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope
from torch import nn

from helpers.tiny import BACKBONES, build
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

WEIGHT_DECAY = 0.05
UNDECAYED = (
    '.bias',
    'pos_embed',
    'class_token',
    'class_position',
    'relative_position_bias_table',
)


class Detector(nn.Module):
    """A backbone and a head, in the shape in which mmdet and mmseg join them."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Conv2d(32, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4))


def make_optimizer(model, scope='mmengine', lr=1.0, **paramwise):
    with DefaultScope.overwrite_default_scope(scope):
        wrapper = build_optim_wrapper(
            model,
            dict(
                optimizer=dict(type='AdamW', lr=lr, weight_decay=WEIGHT_DECAY),
                constructor='mminline.InLineLayerDecayConstructor',
                paramwise_cfg=dict(paramwise),
            ),
        )
    return wrapper.optimizer


def settings(model, optimizer):
    """Learning rate and weight decay of each parameter by name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: (group['lr'], group['weight_decay'])
        for group in optimizer.param_groups
        for parameter in group['params']
    }


@pytest.mark.parametrize(
    ('backbone', 'numbers'),
    [
        (
            InLinePVT,
            {
                'stages.0.embed.proj.weight': 0,
                'stages.0.pos_embed': 0,
                'stages.0.blocks.0.attn.qkv.weight': 1,
                'stages.0.blocks.1.mlp.fc1.bias': 2,
                'stages.1.embed.norm.weight': 3,
                'stages.1.pos_embed': 3,
                'stages.1.blocks.0.norm1.weight': 3,
                'stages.2.blocks.1.norm1.weight': 5,
                'stages.3.embed.proj.bias': 6,
                'stages.3.blocks.0.attn.proj.weight': 6,
            },
        ),
        (
            InLineSwin,
            {
                'stages.0.embed.norm.bias': 0,
                'stages.0.blocks.2.attn.relative_position_bias_table': 3,
                'stages.1.embed.reduction.weight': 4,
                'stages.1.blocks.1.norm2.weight': 5,
                'stages.3.blocks.0.attn.proj.weight': 8,
                'norm0.weight': 9,
                'norm3.bias': 9,
            },
        ),
        (
            InLineDeiT,
            {
                'stages.0.embed.proj.weight': 0,
                'stages.0.pos_embed': 0,
                'stages.0.class_token': 0,
                'stages.0.class_position': 0,
                'stages.0.blocks.0.attn.qkv.weight': 1,
                'stages.0.blocks.3.mlp.fc1.bias': 4,
            },
        ),
    ],
)
def test_layers_count_from_the_first_embedding_to_what_is_fresh(backbone, numbers):
    model = build(backbone)
    num_layers = sum(len(stage.blocks) for stage in model.stages) + 2
    assert set(numbers) <= {name for name, _ in model.named_parameters()}
    for name, number in numbers.items():
        assert model.get_layer_depth(name) == (number, num_layers)
        assert model.get_layer_depth(f'backbone.{name}', 'backbone.') == (number, num_layers)
    assert model.get_layer_depth('head.0.weight', 'backbone.') == (num_layers - 1, num_layers)
    # Others may have stages too.
    for name in ('neck.stages.0.weight', 'stages.0.blocks.0.weight'):
        assert model.get_layer_depth(name, 'backbone.') == (num_layers - 1, num_layers)


@pytest.mark.parametrize('scope', ['mmengine', 'mmdet', 'mmseg'])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_learning_rates_fall_towards_the_image_in_every_scope(backbone, scope):
    importlib.import_module(scope)
    model = Detector(build(backbone))
    found = settings(model, make_optimizer(model, scope, lr=0.1, decay_rate=0.5))
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, (rate, _) in found.items():
        layer, num_layers = model.backbone.get_layer_depth(name, 'backbone.')
        assert rate == pytest.approx(0.1 * 0.5 ** (num_layers - 1 - layer)), name
    assert found['head.0.weight'][0] == 0.1
    assert min(found.values())[0] == found['backbone.stages.0.embed.proj.weight'][0]


@pytest.mark.parametrize('backbone', BACKBONES)
def test_norms_biases_positions_and_tables_are_not_decayed(backbone):
    model = Detector(build(backbone))
    norms = ('norm', 'head.1', 'head.2')
    for name, (_, decay) in settings(model, make_optimizer(model, decay_rate=0.9)).items():
        plain = (
            name.endswith(UNDECAYED)
            or name.split('.')[-2].startswith('norm')
            or name.startswith(norms)
        )
        assert decay == (0 if plain else WEIGHT_DECAY), name


def test_frozen_parameters_are_left_out():
    model = Detector(build(InLineSwin, frozen_stages=2))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert set(settings(model, make_optimizer(model, decay_rate=0.9))) == trained


def test_backbone_alone_can_be_optimized_too():
    model = build(InLinePVT)
    found = settings(model, make_optimizer(model, decay_rate=0.5))
    num_layers = sum(len(stage.blocks) for stage in model.stages) + 2
    assert found['stages.0.pos_embed'][0] == pytest.approx(0.5 ** (num_layers - 1))


def test_one_step_moves_the_head_more_than_the_first_embedding():
    model = Detector(build(InLinePVT))
    optimizer = make_optimizer(model, lr=0.01, decay_rate=0.5)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = {
        name: (parameter - before[name]).abs().mean()
        for name, parameter in model.named_parameters()
    }
    # Biases, because weights move by their decay as well.
    assert moved['head.0.bias'] > 50 * moved['backbone.stages.0.embed.proj.bias'] > 0


@pytest.mark.parametrize(
    ('paramwise', 'message'),
    [
        ({}, 'has to be dict.*got decay_rate=None'),
        (dict(decay_rate=0), 'above 0 and at most 1, got decay_rate=0'),
        (dict(decay_rate=1.5), 'above 0 and at most 1, got decay_rate=1.5'),
        (dict(decay_rate=0.9, bias_lr_mult=2), r"other keys \['bias_lr_mult'\]"),
    ],
)
def test_bad_settings_are_refused(paramwise, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(Detector(build(InLinePVT)), **paramwise)


def test_backbone_without_layer_numbers_is_refused():
    with pytest.raises(ValueError, match='get_layer_depth.*got Conv2d'):
        make_optimizer(Detector(nn.Conv2d(3, 32, 1)), decay_rate=0.9)


def test_missing_learning_rate_is_refused():
    with pytest.raises(ValueError, match='lr, so it has to be given'):
        make_optimizer(Detector(build(InLinePVT)), lr=None, decay_rate=0.9)
