"""The option ``attention``: other registered layers in the blocks of the backbones."""

import re

import pytest
import torch
from mmengine.registry import DefaultScope
from torch import nn
from torch.testing import assert_close

from helpers.tiny import BACKBONES, PYRAMIDS, build, gradients, image, weighted_sum
from mminline.layers import InLineAttention, SoftmaxAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin
from mminline.registry import MODELS


def attention_layers(model):
    return [[block.attn for block in stage.blocks] for stage in model.stages]


@pytest.mark.parametrize('backbone', BACKBONES)
def test_inline_is_the_default(backbone):
    images = image(1, 3, 64, 64)
    assert_close(build(backbone, attention='inline')(images), build(backbone)(images))


@pytest.mark.parametrize('scope', ['mminline', 'mmdet', 'mmseg'])
def test_softmax_windows_in_every_block_of_pvt_shifted_in_odd_ones(scope):
    with DefaultScope.overwrite_default_scope(scope):
        model = build(InLinePVT, attention=dict(type='SoftmaxAttention', window_size=5))
    for stage in attention_layers(model):
        for index, layer in enumerate(stage):
            assert type(layer) is SoftmaxAttention
            assert layer.window_size == 5
            assert layer.shifted == (index % 2 == 1)


def test_in_swin_a_kind_replaces_the_inline_blocks_alone():
    attention = dict(type='mminline.SoftmaxAttention', window_size=None)
    for (stage, other), depth in zip(
        zip(
            attention_layers(build(InLineSwin, attention=attention)),
            attention_layers(build(InLineSwin)),
            strict=True,
        ),
        build(InLineSwin).stages,
        strict=True,
    ):
        assert len(stage) == len(other) == len(depth.blocks)
        for layer, usual in zip(stage, other, strict=True):
            assert type(layer) is SoftmaxAttention
            assert (layer.window_size is None) == isinstance(usual, InLineAttention)


@pytest.mark.parametrize(
    ('backbone', 'attention'),
    [
        (backbone, attention)
        for backbone in BACKBONES
        for attention in (
            dict(type='SoftmaxAttention', window_size=3),
            dict(type='SoftmaxAttention', window_size=None),
            dict(type='InLineAttention', feature_map='exp', injective=False),
            dict(type=InLineAttention, window_size=4),
            dict(type='LinearAttention', feature_map='exp'),
            dict(type='HydraAttention'),
            dict(type='EfficientAttention'),
            dict(type='AngularAttention'),
            dict(type='EnhancedLinearAttention'),
            dict(type='FocusedLinearAttention', focus=2),
            dict(type='MagnitudeAwareAttention'),
        )
        if backbone in PYRAMIDS or attention.get('window_size') is None
    ],
    ids=str,
)
def test_inference_and_training_agree_and_every_parameter_learns(backbone, attention):
    model = build(backbone, attention=attention, drop_rate=0.0).double()
    images = image(2, 3, 64, 96, dtype=torch.float64)
    outputs = model(images)
    with torch.no_grad():
        assert_close(model.eval()(images), outputs)
    weighted_sum(outputs).backward()
    for name, gradient in gradients(model).items():
        assert gradient.abs().max() > 0, name


@MODELS.register_module()
class MeanAttention(nn.Module):
    """A user's own kind: it knows nothing of shifts and has an option of its own."""

    def __init__(self, embed_dims, num_heads, drop_rate=0.0, factor=1.0):
        super().__init__()
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.factor = factor

    def forward(self, x_BLC, hw_shape):
        return self.factor * self.proj(x_BLC.mean(dim=1, keepdim=True).expand_as(x_BLC))


@pytest.mark.parametrize('backbone', BACKBONES)
def test_a_kind_of_the_user_is_one_class(backbone):
    model = build(backbone, attention=dict(type='MeanAttention', factor=2.0))
    assert attention_layers(model)[0][0].factor == 2.0
    images = image(1, 3, 64, 64)
    expected = model(images)
    with torch.no_grad():
        assert_close(model.eval()(images), expected)


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(attention='softmax'), "'inline' or a dict with a type, .*got attention='softmax'"),
        (dict(attention=dict(window_size=3)), "'InLineAttention', 'SoftmaxAttention'"),
        (dict(attention=dict(type='NoAttention')), "registered type.*got type='NoAttention'"),
        (dict(feature_map='relu'), 'feature_map belong to'),
        (dict(injective=False, local_residual=False), 'injective, local_residual belong to'),
    ],
)
def test_bad_kinds_and_switches_of_another_kind_are_refused(backbone, options, message):
    options = {'attention': dict(type='SoftmaxAttention'), **options}
    with pytest.raises(ValueError, match=message):
        build(backbone, **options)


def test_class_tokens_reach_the_layer_and_are_in_no_window():
    model = build(InLineDeiT, attention=dict(type='SoftmaxAttention', window_size=None))
    assert {layer.num_extra_tokens for layer in attention_layers(model)[0]} == {1}
    with pytest.raises(ValueError, match='window_size has to be None with tokens in front'):
        build(InLineDeiT, attention=dict(type='SoftmaxAttention'))


def test_an_option_that_a_kind_does_not_know_is_refused():
    with pytest.raises(TypeError, match='windows'):
        build(InLinePVT, attention=dict(type='SoftmaxAttention', windows=3))
    with pytest.raises(ValueError, match=re.escape("inline_window belong to attention='inline'")):
        build(InLineSwin, attention=dict(type='SoftmaxAttention'), inline_window=7)
