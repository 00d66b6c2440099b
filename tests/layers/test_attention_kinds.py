"""Kinds of attention over the whole map: formulas, gradients, precision, what they confuse."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from helpers.attention_layers import join_heads, split_heads
from helpers.tiny import gradients, image, randomize
from mminline import execution
from mminline.layers import (
    AngularAttention,
    Block,
    EfficientAttention,
    EnhancedLinearAttention,
    FocusedLinearAttention,
    HydraAttention,
    LinearAttention,
    MagnitudeAwareAttention,
    linear_attention,
    reference,
)
from mminline.layers.attention.angular import angular_attention, angular_weights
from mminline.layers.attention.efficient import efficient_attention, efficient_weights
from mminline.layers.attention.focused import focus_channels
from mminline.layers.attention.hydra import hydra_attention, hydra_weights
from mminline.layers.attention.magnitude_aware import (
    magnitude_aware_attention,
    magnitude_aware_weights,
)

CHANNELS, HEADS = 8, 2
KINDS = [
    LinearAttention,
    HydraAttention,
    EfficientAttention,
    AngularAttention,
    EnhancedLinearAttention,
    FocusedLinearAttention,
    MagnitudeAwareAttention,
]
CONVOLVING = KINDS[3:]
GRIDS = [(1, 1), (1, 7), (5, 1), (3, 5)]


def make_layer(kind, **options):
    return randomize(kind(CHANNELS, HEADS, **options), std=0.5).double()


def tokens(hw_shape, batch=2, extra=0):
    return image(batch, extra + hw_shape[0] * hw_shape[1], CHANNELS, dtype=torch.float64)


def random_qkv(num_queries=4, num_keys=6, channels=3):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(1, 1, number, channels, dtype=torch.float64, generator=generator)
        for number in (num_queries, num_keys, num_keys)
    )


def explicit_layer(layer, x_BLC, hw_shape):
    """The layer by its explicit weights and a sum over neighbours."""
    qkv = F.linear(x_BLC, layer.qkv.weight, layer.qkv.bias).chunk(3, dim=-1)
    heads = layer.num_heads
    q, k, v = (split_heads(part, heads) for part in qkv)
    mixed = join_heads(layer.rule(layer.map_features(q), layer.map_features(k)) @ v)
    if layer.local is not None:
        kernel = layer.local.weight.squeeze(1).expand(len(x_BLC), -1, -1, -1)
        mixed = mixed + reference.local_residual(qkv[2], kernel, hw_shape, layer.num_extra_tokens)
    return F.linear(mixed, layer.proj.weight, layer.proj.bias)


def backward(layer, form, x):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = form(x)
    out.backward(image(*out.shape, dtype=out.dtype))
    return {'out': out, 'x': x.grad, **gradients(layer)}


@pytest.mark.parametrize('extra', [0, 2])
@pytest.mark.parametrize('hw_shape', GRIDS, ids=str)
@pytest.mark.parametrize('kind', KINDS)
def test_layer_equals_its_explicit_weights_with_gradients(kind, hw_shape, extra):
    layer, x = make_layer(kind, num_extra_tokens=extra), tokens(hw_shape, extra=extra)
    expected = backward(layer, lambda x: explicit_layer(layer, x, hw_shape), x)
    assert_close(backward(layer, lambda x: layer(x, hw_shape), x), expected)
    assert_close(backward(layer, lambda x: execution.run(layer, x, hw_shape), x), expected)


@pytest.mark.parametrize('kind', KINDS)
def test_the_convolution_is_as_the_papers_have_it_and_can_be_switched(kind):
    assert (kind(CHANNELS, HEADS).local is not None) == (kind in CONVOLVING)
    assert kind(CHANNELS, HEADS, local_residual=False).local is None
    assert kind(CHANNELS, HEADS, local_residual=True).local.weight.shape == (CHANNELS, 1, 3, 3)


def test_hydra_weights_follow_the_formula_number_by_number():
    layer = make_layer(HydraAttention)
    q, k = (split_heads(tokens((1, 3), batch=1), CHANNELS) for _ in range(2))
    k = k.flip(2)
    weights = hydra_weights(layer.map_features(q), layer.map_features(k))[0]
    for i in range(3):
        for j in range(3):
            query, key = q[0, :, i, 0], k[0, :, j, 0]
            lengths = math.sqrt(query.square().sum()) * math.sqrt(key.square().sum())
            assert_close(weights[:, i, j], query * key / lengths)


def test_efficient_weights_follow_the_formula_number_by_number():
    q, k, _ = random_qkv()
    weights = efficient_weights(q, k)[0, 0]
    q, k = q[0, 0].exp(), k[0, 0].exp()
    for i in range(4):
        for j in range(6):
            expected = sum(q[i, c] / q[i].sum() * k[j, c] / k[:, c].sum() for c in range(3))
            assert_close(weights[i, j], expected)


def test_angular_weights_follow_the_formula_number_by_number():
    q, k, _ = (F.normalize(part, dim=-1) for part in random_qkv())
    weights = angular_weights(q, k)[0, 0]
    for i in range(4):
        similarities = [0.5 + float(q[0, 0, i] @ k[0, 0, j]) / math.pi for j in range(6)]
        expected = [value / sum(similarities) for value in similarities]
        assert weights[i].tolist() == pytest.approx(expected, rel=1e-12)
    assert weights.min() > 0


def test_angular_similarity_is_the_linear_part_of_one_minus_the_angle():
    # At right angles both are 1/2, and their slopes agree.
    for step in (0.0, 1e-4):
        angle = math.pi / 2 - step
        assert 1 - angle / math.pi == pytest.approx(0.5 + math.cos(angle) / math.pi, abs=1e-12)


def test_focused_map_follows_the_formula_number_by_number():
    x = torch.tensor([3.0, -2.0, 0.5, 4.0], dtype=torch.float64)
    positive = x.clamp(min=0)
    cubes = positive**3
    expected = positive.square().sum().sqrt() / cubes.square().sum().sqrt() * cubes
    assert_close(focus_channels(x, 3), expected)
    assert_close(focus_channels(x, 1), positive)
    assert focus_channels(-x.abs(), 3).tolist() == [0, 0, 0, 0]
    tiny, huge = 1e-8 * x.float(), 1e8 * x.float()
    assert_close(1e8 * focus_channels(tiny, 3), expected.float())
    assert_close(1e-8 * focus_channels(huge, 3), expected.float())


def test_magnitude_aware_weights_follow_the_formula_number_by_number():
    q, k, _ = (F.elu(part) + 1 for part in random_qkv())
    weights = magnitude_aware_weights(q, k, scale=0.7)[0, 0]
    for i in range(4):
        scores = [0.7 / 6 * float(q[0, 0, i] @ k[0, 0, j]) for j in range(6)]
        beta, gamma = 1 + 1 / sum(scores), sum(scores) / 6
        expected = [beta * score - gamma for score in scores]
        assert weights[i].tolist() == pytest.approx(expected, rel=1e-12)
        assert sum(expected) == pytest.approx(1)


def test_magnitude_aware_attention_is_inline_attention_of_longer_queries():
    q, k, v = random_qkv()
    q, k = F.elu(q) + 1, F.elu(k) + 1
    beta = 1 + 1 / (0.7 * q @ k.mean(dim=2, keepdim=True).transpose(-2, -1))
    assert_close(
        magnitude_aware_weights(q, k, 0.7), reference.inline_weights(beta * q, k, scale=0.7)
    )
    zero = torch.zeros_like(q)  # as ELU + 1 is of large negative numbers in float32
    assert_close(magnitude_aware_attention(zero, k, v, 0.7), v.mean(2, True).expand_as(zero))


FUNCTIONS = {
    'hydra': (hydra_attention, hydra_weights),
    'efficient': (efficient_attention, efficient_weights),
    'angular': (angular_attention, angular_weights),
    'mala': (
        lambda q, k, v: magnitude_aware_attention(q, k, v, 0.7),
        lambda q, k, visible_BNLM=None: magnitude_aware_weights(q, k, 0.7, visible_BNLM),
    ),
}


def inputs_of(name, num_queries=4, num_keys=6):
    q, k, v = random_qkv(num_queries, num_keys, channels=1 if name == 'hydra' else 3)
    if name == 'angular':
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    if name == 'mala':
        q, k = F.elu(q) + 1, F.elu(k) + 1
    return [part.requires_grad_() for part in (q, k, v)]


@pytest.mark.parametrize('name', FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    torch.autograd.gradcheck(FUNCTIONS[name][0], inputs_of(name))


def test_gradients_of_the_focused_map_are_those_of_finite_differences():
    x = image(3, 4, dtype=torch.float64).requires_grad_()
    torch.autograd.gradcheck(lambda x: focus_channels(x, 3), x)
    silent = (-x.detach().abs()).requires_grad_()
    focus_channels(silent, 3).sum().backward()
    assert silent.grad.abs().max() == 0


@pytest.mark.parametrize('name', FUNCTIONS)
def test_hidden_keys_are_as_good_as_absent(name):
    q, k, v = inputs_of(name)
    kept = torch.tensor([True, False, True, True, False, True])
    weights = FUNCTIONS[name][1](q, k, visible_BNLM=kept.view(1, 1, 1, -1).expand(1, 1, 4, -1))
    alone = FUNCTIONS[name][0](q, k[:, :, kept], v[:, :, kept])
    assert_close(weights @ v, alone)


def outputs_of_queries(kind, change):
    """Mixed values of a layer for queries and for changed queries, the same keys and values."""
    layer = make_layer(kind)
    q, k, v = (split_heads(part, layer.num_heads) for part in image(3, 2, 9, 8).double().unbind())
    k, results = layer.map_features(k), []
    for queries in (q, change(q)):
        results.append(join_heads(layer.mix(layer.map_features(queries), k, v)))
    return results


@pytest.mark.parametrize(
    'kind',
    [
        LinearAttention,
        HydraAttention,
        AngularAttention,
        EnhancedLinearAttention,
        FocusedLinearAttention,
    ],
)
def test_queries_of_another_length_are_confused(kind):
    # The counter-example to injectivity: docs/attention.md.
    once, thrice = outputs_of_queries(kind, lambda q: 3 * q)
    assert_close(once, thrice, rtol=0, atol=2e-5)


def test_efficient_attention_confuses_queries_moved_along_the_diagonal():
    once, moved = outputs_of_queries(EfficientAttention, lambda q: q + 5)
    assert_close(once, moved)


@pytest.mark.parametrize('kind', [EfficientAttention, MagnitudeAwareAttention])
def test_queries_of_another_length_are_told_apart(kind):
    once, thrice = outputs_of_queries(kind, lambda q: 3 * q)
    assert (once - thrice).abs().amax(dim=-1).min() > 1e-2


def test_magnitude_aware_weights_are_injective_when_centred_keys_have_full_rank():
    # As the proof goes: equal weights would need p = c q, and then c = 1.
    _, k, _ = random_qkv(num_keys=6)
    k = F.elu(k) + 1
    assert torch.linalg.matrix_rank((k - k.mean(dim=2, keepdim=True))[0, 0]) == 3
    points = torch.rand(1, 1, 200, 3, dtype=torch.float64) * 4 + 0.01
    weights = magnitude_aware_weights(points, k, 0.7)[0, 0]
    near = torch.cdist(weights, weights) / torch.cdist(points, points)[0, 0]
    assert near[~torch.eye(200, dtype=torch.bool)].min() > 1e-4
    # Keys in one plane: some other query has the same weights.
    k[..., 2] = 1 - k[..., 0]
    direction = torch.tensor([1.0, 0, 1], dtype=torch.float64)  # equal products with all keys
    q = torch.tensor([0.8, 0.5, 0.3], dtype=torch.float64)
    z = 0.7 * float(q @ k[0, 0].mean(0))
    flat = q - direction * (q @ direction) / 2  # what the weights see, times 1 + 1 / z
    target = 0.9
    needed = target * z / (z + 1 - target * z)  # the sum at which 1 + 1 / sum makes up for 0.9
    base = 0.9 * flat
    other = base + direction * (needed / 0.7 - float(base @ k[0, 0].mean(0)))
    both = torch.stack([q, other]).view(1, 1, 2, 3)
    same = magnitude_aware_weights(both, k, 0.7)[0, 0]
    assert (q - other).abs().max() > 1e-2
    assert_close(same[0], same[1])


@pytest.mark.slow
@pytest.mark.parametrize(('half', 'limit'), [(torch.float16, 5e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize('kind', KINDS)
@torch.no_grad()
def test_half_precision_is_finite_and_near_float64(kind, half, limit):
    layer = randomize(kind(CHANNELS, HEADS))
    x = image(1, 20_000, CHANNELS) + 3 * image(1, 1, CHANNELS)
    exact = copy.deepcopy(layer).double()(x.double(), (100, 200))
    with torch.autocast('cpu', dtype=half):
        out = layer(x, (100, 200))
    halved = copy.deepcopy(layer).to(half)(x.to(half), (100, 200))
    assert halved.dtype == half
    for result in (out, halved):
        assert result.isfinite().all()
        error = (result.double() - exact).square().mean().sqrt() / exact.std()
        assert error < limit


def test_sums_over_tokens_are_taken_in_float32():
    k = torch.ones(1, 1, 70_000, 1).half()
    assert hydra_attention(k[:, :, :1], k, k / 2).item() == pytest.approx(35_000, rel=1e-3)
    v = 20 + torch.zeros(1, 1, 70_000, 2).half()
    for attend in (efficient_attention, angular_attention, linear_attention):
        assert_close(attend(v / 100, v / 100, v), v)


class AllKinds(nn.Module):
    """A block of each kind, one behind the other, on maps of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(kind(CHANNELS, HEADS), CHANNELS, 1) for kind in KINDS)

    def forward(self, map_BCHW):
        grid = map_BCHW.shape[2:]
        x_BLC = map_BCHW.flatten(2).transpose(1, 2)
        for block in self.blocks:
            x_BLC = execution.run(block, x_BLC, grid)
        return x_BLC.transpose(1, 2).unflatten(2, grid)


def test_blocks_of_every_kind_run_fused_and_equal_plain_ones():
    model = randomize(AllKinds()).double()
    x, grid = tokens((5, 6)), (5, 6)
    for block in model.blocks:
        assert execution.choose(block, x, grid).name == 'fused'
        assert_close(execution.run(block, x, grid), block(x, grid))
        with torch.no_grad():
            decision = execution.choose(block.eval(), x, grid)
        assert decision.reason == f'{type(block.attn).__name__} does not run in bands'


@pytest.mark.slow
def test_every_kind_is_exported_for_any_size(tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    model = randomize(AllKinds()).eval()
    sides = {2: torch.export.Dim('height', min=2), 3: torch.export.Dim('width', min=2)}
    path = tmp_path / 'kinds.onnx'
    program = torch.export.export(model, (image(1, 8, 6, 7),), dynamic_shapes=(sides,))
    torch.onnx.export(program, f=path, dynamo=True)
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    for shape in [(1, 8, 6, 7), (1, 8, 3, 17)]:
        x = image(*shape)
        with torch.no_grad():
            expected = model(x)
        assert_close(program.module()(x), expected, rtol=1e-4, atol=1e-4)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ('kind', 'extra'),
    [
        (LinearAttention, lambda n, c, d: 2 * n * c * d + n * c),
        (HydraAttention, lambda n, c, d: 0),  # products of numbers, which are not counted
        (EfficientAttention, lambda n, c, d: 2 * n * c * d),
        (AngularAttention, lambda n, c, d: 2 * n * c * d + 10 * n * c),
        (EnhancedLinearAttention, lambda n, c, d: 2 * n * c * d + 10 * n * c),
        (FocusedLinearAttention, lambda n, c, d: 2 * n * c * d + 10 * n * c),
        (MagnitudeAwareAttention, lambda n, c, d: 2 * n * c * d + 10 * n * c),
    ],
)
def test_each_kind_costs_what_the_page_says(kind, extra):
    n, c, d = 15, CHANNELS, CHANNELS // HEADS
    with FlopCounterMode(display=False) as counter:
        make_layer(kind)(tokens((3, 5), batch=1), (3, 5))
    assert counter.get_total_flops() == 2 * (4 * n * c * c + extra(n, c, d))


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match=r"\['relu', 'exp'\], got feature_map='identity'"):
        LinearAttention(CHANNELS, HEADS, feature_map='identity')
    with pytest.raises(ValueError, match='focus has to be at least 1, got focus=0.5'):
        FocusedLinearAttention(CHANNELS, HEADS, focus=0.5)
    for kind in KINDS:
        with pytest.raises(ValueError, match='embed_dims=8 and num_heads=3'):
            kind(CHANNELS, 3)
        with pytest.raises(ValueError, match='from 0 on, got num_extra_tokens=-1'):
            kind(CHANNELS, HEADS, num_extra_tokens=-1)
        with pytest.raises(ValueError, match=r'\(B, 12, 8\).*got \(1, 13, 8\)'):
            kind(CHANNELS, HEADS)(torch.zeros(1, 13, CHANNELS), (3, 4))
