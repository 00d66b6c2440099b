"""Every option of the backbones has its effect, and a bad value its refusal."""

import re

import pytest
import torch
from torch.testing import assert_close

from helpers.attention_layers import inline_layer, softmax_layer, windowed_inline_layer
from helpers.tiny import (
    ARCHS,
    BACKBONES,
    CHANNELS,
    DEIT_SIZES,
    PYRAMIDS,
    SIZES,
    STRIDES,
    SWIN_SIZES,
    build,
    image,
)
from mminline.layers import InLineAttention, SoftmaxAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize('out_indices', [(0,), (3,), (1, 2), [0, 2, 3]])
def test_out_indices_choose_among_the_same_maps(backbone, out_indices):
    full, some = build(backbone).eval(), build(backbone, out_indices=out_indices).eval()
    some.load_state_dict(
        {key: value for key, value in full.state_dict().items() if key in some.state_dict()}
    )
    maps = full(image(1, 3, 64, 64))
    assert_close(some(image(1, 3, 64, 64)), tuple(maps[index] for index in out_indices))
    assert some.strides == tuple(STRIDES[backbone][index] for index in out_indices)
    assert some.out_channels == tuple(CHANNELS[backbone][index] for index in out_indices)


def test_swin_norms_each_output_and_the_others_none():
    model = build(InLineSwin, out_indices=(1, 3)).double().eval()
    raw = build(InLineSwin, out_indices=(1, 3)).double().eval()
    for index in (1, 3):
        setattr(raw, f'norm{index}', torch.nn.Identity())
    images = image(1, 3, 64, 64, dtype=torch.float64)
    for index, feature, bare in zip((1, 3), model(images), raw(images), strict=True):
        norm = getattr(model, f'norm{index}')
        assert_close(feature, norm(bare.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
    for other in (InLinePVT, InLineDeiT):
        assert [name for name, _ in build(other).named_children()] == ['stages']


@pytest.mark.parametrize('backbone', BACKBONES)
def test_in_channels_are_those_of_the_image(backbone):
    model = build(backbone, in_channels=5)
    assert model(image(1, 5, 32, 32))[0].isfinite().all()
    with pytest.raises(ValueError, match=r'shape \(B, 5, H, W\)'):
        model(image(1, 3, 32, 32))


@pytest.mark.parametrize(
    'options',
    [
        dict(feature_map='relu'),
        dict(feature_map='leaky_relu'),
        dict(feature_map='exp'),
        dict(feature_map='relu', injective=False),
        dict(feature_map='exp', injective=False),
        dict(local_residual=False),
    ],
)
@pytest.mark.parametrize('backbone', BACKBONES)
def test_switches_of_attention_reach_every_inline_layer(backbone, options):
    model = build(backbone, **options).double().eval()
    check_attention_layers(model, lambda layer, x, hw_shape, _: inline_layer(layer, x, hw_shape))
    for layer in model.modules():
        if isinstance(layer, InLineAttention):
            assert layer.feature_map == options.get('feature_map', 'identity')
            assert layer.injective == options.get('injective', True)
            assert (layer.local_kernel is not None) == options.get('local_residual', True)


def test_inline_window_keeps_attention_in_windows_shifted_in_odd_blocks():
    model = build(InLineSwin, inline_window=3).double().eval()

    def windowed(layer, x, hw_shape, block):
        shift = 1 if block % 2 and min(hw_shape) > 3 else 0
        return windowed_inline_layer(layer, x, hw_shape, shift)

    check_attention_layers(model, windowed, sides=(128, 160))


def check_attention_layers(model, expected_inline, sides=(64, 96)):
    """Compare each attention layer of a model with its definition, on what it gets there."""
    calls = []
    for name, layer in model.named_modules():
        if isinstance(layer, (InLineAttention, SoftmaxAttention)):
            layer.register_forward_hook(
                lambda layer, inputs, output, name=name: calls.append((name, layer, inputs, output))
            )
    model(image(1, 3, *sides, dtype=torch.float64))
    for name, layer, (x, hw_shape), output in calls:
        stage, block = int(name.split('.')[1]), int(name.split('.')[3])
        inline_depths = SWIN_SIZES['inline_depths'] if isinstance(model, InLineSwin) else [99] * 4
        assert isinstance(layer, InLineAttention) == (block < inline_depths[stage])
        if isinstance(layer, InLineAttention):
            expected = expected_inline(layer, x, hw_shape, block)
        else:
            # Odd blocks of a stage shift, the InLine ones counted.
            shift = 3 if block % 2 and min(hw_shape) > 7 else 0
            expected = softmax_layer(layer, x, hw_shape, shift)
        assert_close(output, expected)
    assert len(calls) == sum(len(stage.blocks) for stage in model.stages)


@pytest.mark.parametrize('inline_window', [16, 56])
def test_inline_window_not_smaller_than_the_grid_changes_nothing(inline_window):
    images = image(1, 3, 64, 64, dtype=torch.float64)
    whole, windows = build(InLineSwin), build(InLineSwin, inline_window=inline_window)
    assert_close(windows.double()(images), whole.double()(images))


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(arch='huge'), "arch has to be one of .*'tiny'.* or a dict, got arch='huge'"),
        (dict(out_indices=(0, 4)), r'from 0 to 3, got out_indices=\(0, 4\)'),
        (
            dict(out_indices=(-1,)),
            r'ascending (stages|blocks) from 0 to 3, got out_indices=\(-1,\)',
        ),
        (
            dict(out_indices=(2, 1)),
            r'ascending (stages|blocks) from 0 to 3, got out_indices=\(2, 1\)',
        ),
        (
            dict(out_indices=(1, 1)),
            r'ascending (stages|blocks) from 0 to 3, got out_indices=\(1, 1\)',
        ),
        (dict(out_indices=()), r'ascending (stages|blocks) from 0 to 3, got out_indices=\(\)'),
        (dict(frozen_stages=5), 'from -1 to 4, got frozen_stages=5'),
        (dict(frozen_stages=-2), 'from -1 to 4, got frozen_stages=-2'),
        (dict(drop_rate=1.5), 'between 0 and 1, but got 1.5'),
        (dict(drop_path_rate=1.0), r'in \[0, 1\), got drop_path_rate=1.0'),
        (dict(drop_path_rate=-0.1), r'in \[0, 1\), got drop_path_rate=-0.1'),
        (dict(feature_map='gelu'), "one of .*'leaky_relu'.*, got feature_map='gelu'"),
        (dict(injective=False), "free of negative values.*got feature_map='identity'"),
        (dict(feature_map='leaky_relu', injective=False), "got feature_map='leaky_relu'"),
    ],
)
def test_bad_options_are_refused_with_what_was_wanted_and_what_came(backbone, options, message):
    with pytest.raises(ValueError, match=message):
        backbone(**{'arch': ARCHS[backbone], 'out_indices': (0, 1, 2, 3), **options})


@pytest.mark.parametrize('backbone', PYRAMIDS)
@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(num_heads=(1, 2, 5, 4)), 'embed_dims=24 and num_heads=5'),
        (dict(depths=(1, 1)), "one entry per stage in each key, got .*'depths': 2"),
        (dict(depths=(1, 0, 1, 1)), r'depths of an arch has to be at least 1'),
        (dict(widths=(1, 1, 1, 1)), "has to have the keys .*got .*'widths'"),
        (dict(num_heads=None), "has to have the keys .*'num_heads'.* got "),
    ],
)
def test_bad_sizes_are_refused_with_what_was_wanted_and_what_came(backbone, changes, message):
    arch = {**ARCHS[backbone], **changes}
    arch = {key: values for key, values in arch.items() if values is not None}
    with pytest.raises(ValueError, match=message):
        backbone(arch)


def test_a_plain_transformer_has_one_stage():
    with pytest.raises(ValueError, match='InLineDeiT has to have one stage, got arch='):
        InLineDeiT(SIZES)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(inline_depths=(4, 2, 1, 0)), r'at most depths .*inline_depths=\(4, 2, 1, 0\)'),
        (dict(inline_depths=(-1, 2, 1, 0)), 'inline_depths of an arch has to be at least 0'),
    ],
)
def test_bad_numbers_of_inline_blocks_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        InLineSwin({**SWIN_SIZES, **changes})


def test_bad_inline_window_and_pre_training_size_are_refused():
    with pytest.raises(ValueError, match='None or a whole number from 1 on, got inline_window=0'):
        InLineSwin(SWIN_SIZES, inline_window=0)
    for size in (0, (64, 0)):
        message = re.escape(f'at least 1, got pretrain_size={size}')
        with pytest.raises(ValueError, match=message):
            InLinePVT(SIZES, pretrain_size=size)
        with pytest.raises(ValueError, match=message):
            InLineDeiT(DEIT_SIZES, pretrain_size=size)


@pytest.mark.parametrize('backbone', BACKBONES)
def test_options_of_another_type_and_misspelt_keywords_are_refused(backbone):
    with pytest.raises(TypeError, match='or a dict, got arch=4'):
        backbone(arch=4)
    with pytest.raises(
        TypeError, match='depths of an arch has to be a list or tuple, got depths=2'
    ):
        backbone(arch=dict(ARCHS[backbone], depths=2))
    with pytest.raises(TypeError, match=r'list or tuple of (stages|blocks), got out_indices=3'):
        backbone(arch=ARCHS[backbone], out_indices=3)
    with pytest.raises(TypeError, match='drop_path'):
        backbone(arch=ARCHS[backbone], drop_path=0.1)
