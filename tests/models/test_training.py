"""Training: gradients everywhere, checkpointing, freezing, dropout and drop path."""

import pytest
import torch
from torch.testing import assert_close

from helpers.tiny import (
    ARCHS,
    BACKBONES,
    build,
    gradients,
    image,
    randomize,
    weighted_sum,
)
from mminline.layers import InLineAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin


def backward(model, images):
    weighted_sum(model(images)).backward()
    return gradients(model)


def key_bias_gradients(model):
    return [
        layer.qkv.bias.grad.chunk(3)[1]
        for layer in model.modules()
        if isinstance(layer, InLineAttention)
    ]


@pytest.mark.parametrize('folded', [True, False])
@pytest.mark.parametrize(
    ('backbone', 'options'),
    [
        (InLinePVT, {}),
        (InLineSwin, {}),
        (InLineSwin, dict(inline_window=3)),
        (InLinePVT, dict(feature_map='leaky_relu')),
        (InLinePVT, dict(feature_map='exp', injective=False)),
        (InLineSwin, dict(feature_map='relu', local_residual=False)),
        (InLineDeiT, {}),
    ],
)
def test_every_parameter_gets_a_gradient(backbone, options, folded, monkeypatch):
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    model = build(backbone, **options).double()
    for name, gradient in backward(model, image(2, 3, 96, 128, dtype=torch.float64)).items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        # Key biases alone move nothing: they cancel in a covariance (identity map) and in a
        # softmax, whose slices of the joint bias are zero beside those of queries and values.
        assert gradient.abs().max() > 1e-6, name


@pytest.mark.parametrize(('folded', 'bound'), [(True, 0.0), (False, 1e-11)])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_key_biases_get_a_zero_gradient_with_the_identity_map(backbone, folded, bound, monkeypatch):
    # Exactly zero in the folded form, which never reads them, else zero to rounding.
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    model = build(backbone).double()
    backward(model, image(1, 3, 64, 96, dtype=torch.float64))
    slices = key_bias_gradients(model)
    assert slices
    assert max(gradient.abs().max() for gradient in slices) <= bound


@pytest.mark.parametrize('backbone', BACKBONES)
def test_every_parameter_of_a_published_size_gets_a_gradient(backbone):
    model = randomize(backbone('tiny'), std=0.05)
    for name, gradient in backward(model, image(1, 3, 64, 96)).items():
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name


@pytest.mark.parametrize('options', [{}, dict(drop_path_rate=0.5, drop_rate=0.2)])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_checkpointing_changes_no_gradient(backbone, options):
    results = []
    for with_cp in (False, True):
        model = build(backbone, with_cp=with_cp, **options).train()
        torch.manual_seed(3)
        results.append(backward(model, image(4, 3, 64, 64)))
    assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize('backbone', BACKBONES)
def test_checkpointing_reaches_every_block(backbone):
    model = build(backbone, with_cp=True).train()
    calls = []
    blocks = [block for stage in model.stages for block in stage.blocks]
    for block in blocks:
        block.norm1.register_forward_hook(lambda *_: calls.append(1))
    backward(model, image(1, 3, 32, 32))
    assert len(calls) == 2 * len(blocks)


def frozen_prefixes(backbone, frozen_stages):
    units = 'stages.0.blocks' if backbone is InLineDeiT else 'stages'
    prefixes = [f'{units}.{unit}.' for unit in range(frozen_stages)]
    if frozen_stages >= 0:
        prefixes += [f'stages.0.{part}' for part in ('embed.', 'pos_embed', 'class_', 'drop.')]
    if backbone is InLineSwin:
        prefixes += [f'norm{stage}.' for stage in range(frozen_stages)]
    return tuple(prefixes)


@pytest.mark.parametrize('frozen_stages', [-1, 0, 1, 2, 3])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_frozen_parameters_and_no_others_go_without_gradient(backbone, frozen_stages):
    model = build(backbone, frozen_stages=frozen_stages)
    prefixes = frozen_prefixes(backbone, frozen_stages)
    for name, gradient in backward(model.train(), image(1, 3, 96, 96)).items():
        assert (gradient is None) == name.startswith(prefixes), name


@pytest.mark.parametrize('backbone', BACKBONES)
def test_all_stages_can_be_frozen(backbone):
    model = build(backbone, frozen_stages=4).train()
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize('frozen_stages', [-1, 0, 2])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_frozen_modules_stay_in_eval_when_the_model_trains(backbone, frozen_stages):
    model = build(backbone, frozen_stages=frozen_stages, drop_rate=0.1, drop_path_rate=0.1)
    assert model.train() is model
    prefixes = frozen_prefixes(backbone, frozen_stages)
    for name, module in model.named_modules():
        if not list(module.children()):
            assert module.training != f'{name}.'.startswith(prefixes), name
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    assert model.train(True).training


@pytest.mark.parametrize('backbone', BACKBONES)
def test_frozen_stages_drop_nothing_in_training(backbone):
    options = dict(frozen_stages=2, out_indices=(1,), drop_rate=0.5, drop_path_rate=0.5)
    model = build(backbone, **options)
    images = image(2, 3, 64, 64)
    assert_close(model.train()(images), model.eval()(images))


@pytest.mark.parametrize('backbone', BACKBONES)
def test_drop_path_rises_linearly_over_all_blocks(backbone):
    model = build(backbone, drop_path_rate=0.3)
    blocks = [block for stage in model.stages for block in stage.blocks]
    rates = [getattr(block.drop_path, 'drop_prob', 0.0) for block in blocks]
    assert rates == pytest.approx([0.3 * index / (len(blocks) - 1) for index in range(len(blocks))])


@pytest.mark.parametrize('options', [dict(drop_rate=0.3), dict(drop_path_rate=0.5)])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_dropping_acts_in_training_alone(backbone, options):
    torch.manual_seed(0)
    model, plain = build(backbone, **options), build(backbone)
    images = image(4, 3, 64, 64)
    assert_close(model.eval()(images), plain.eval()(images))
    assert (model.train()(images)[-1] - model(images)[-1]).abs().max() > 1e-3


@pytest.mark.parametrize('part', ['stages.0.drop', 'attn.drop', 'mlp.drop', 'drop_path'])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_dropping_can_be_kept_on_by_itself_in_inference(backbone, part):
    # The way to sample several predictions of one image.
    # The first map, because its blocks are the ones that bands are made for; the first block of
    # a plain transformer has no drop path yet.
    index = 1 if backbone is InLineDeiT else 0
    model = build(backbone, drop_rate=0.3, drop_path_rate=0.9).eval()
    images = image(16, 3, 64, 64)
    with torch.inference_mode():
        full = model(images)[index]
        for name, module in model.named_modules():
            module.train(name.endswith(part))
        assert (model(images)[index] - full).abs().max() > 1e-3


@pytest.mark.parametrize('backbone', BACKBONES)
def test_drop_rate_acts_after_embedding_projection_and_mlp(backbone):
    model = build(backbone, drop_rate=0.25)
    rates = {
        name: part.p for name, part in model.named_modules() if isinstance(part, torch.nn.Dropout)
    }
    depths = ARCHS[backbone]['depths']
    dropped = {'stages.0.drop'}
    for stage, depth in enumerate(depths):
        if backbone is InLinePVT:
            dropped.add(f'stages.{stage}.drop')
        for block in range(depth):
            dropped |= {f'stages.{stage}.blocks.{block}.{part}.drop' for part in ('attn', 'mlp')}
    assert {name for name, rate in rates.items() if rate == 0.25} == dropped
    assert all(rate in (0, 0.25) for rate in rates.values())


def test_stages_behind_the_last_output_are_not_waited_for():
    model = build(InLinePVT, out_indices=(0, 1))
    assert not any(parameter.requires_grad for parameter in model.stages[2:].parameters())
    assert all(parameter.requires_grad for parameter in model.stages[:2].parameters())
