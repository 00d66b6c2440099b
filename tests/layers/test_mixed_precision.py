"""Half precision: statistics stay in float32, so nothing overflows and digits are kept."""

import copy

import pytest
import torch
from torch.testing import assert_close

from helpers.tiny import BACKBONES, build, image, randomize
from mminline.layers import InLineAttention, inline_attention, linear_attention

pytestmark = pytest.mark.slow

# Root mean square errors of a layer, relative to the spread of its output.
HALVES = {torch.float16: 2e-3, torch.bfloat16: 1e-2}
GRID = (200, 300)


def error(out, exact):
    """Root mean square of the difference, relative to the spread."""
    assert out.isfinite().all()
    return ((out.double() - exact).square().mean().sqrt() / exact.std()).item()


@pytest.fixture(scope='module', params=[1, 30], ids=['ordinary', 'thirtyfold'])
def many_tokens(request):
    # 60,000 tokens whose channels have means of their own, as those behind a norm can have.
    return request.param * (image(1, 60_000, 16) + 3 * image(1, 1, 16))


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize('folded', [True, False])
@torch.no_grad()
def test_layer_under_autocast_is_finite_and_near_float64(many_tokens, folded, half):
    layer = randomize(InLineAttention(16, 2))
    layer.folded = folded
    exact = copy.deepcopy(layer).double()(many_tokens.double(), GRID)
    with torch.autocast('cpu', dtype=half):
        out = layer(many_tokens, GRID)
    assert error(out, exact) < HALVES[half]


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize(
    'options',
    [
        dict(feature_map='relu'),
        dict(feature_map='relu', injective=False),
        dict(feature_map='exp', injective=False),
        dict(window_size=56, shifted=True),
    ],
)
@torch.no_grad()
def test_layer_with_options_under_autocast_is_finite_and_near_float64(many_tokens, options, half):
    layer = randomize(InLineAttention(16, 2, **options))
    exact = copy.deepcopy(layer).double()(many_tokens.double(), GRID)
    with torch.autocast('cpu', dtype=half):
        out = layer(many_tokens, GRID)
    assert error(out, exact) < HALVES[half]


@pytest.mark.parametrize('half', HALVES)
@torch.no_grad()
def test_folded_form_is_as_exact_as_the_plain_one_whatever_the_channel_means(half):
    # Values come from weights rounded to half precision, so their mean is not quite that of
    # the exact weights: centring by the latter would multiply the gap by the tokens' mean.
    layer = randomize(InLineAttention(16, 2, local_residual=False))
    x = image(1, 2_000, 16) + 30 * image(1, 1, 16)
    exact = copy.deepcopy(layer).double()(x.double(), (40, 50))
    errors = []
    for folded in (True, False):
        layer.folded = folded
        with torch.autocast('cpu', dtype=half):
            errors.append(error(layer(x, (40, 50)), exact))
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize('folded', [True, False])
def test_gradients_under_autocast_are_finite(many_tokens, folded, half):
    layer = randomize(InLineAttention(16, 2))
    layer.folded = folded
    with torch.autocast('cpu', dtype=half):
        out = layer(many_tokens, GRID)
    (out.float() / many_tokens.numel()).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize('half', HALVES)
def test_sums_over_tokens_are_taken_in_float32(half):
    # 60,000 products of numbers around 20 are far beyond the range of float16, and to a sum in
    # bfloat16 a number does nothing any more once the sum is 512 times as large.
    q, k, v = ((image(1, 1, 60_000, 4) + mean).to(half) for mean in (0, 20, 20))
    doubles = q.double(), k.double(), v.double()
    exact = inline_attention(*doubles, 0.5)
    assert_close(inline_attention(q, k, v, 0.5).double(), exact, rtol=HALVES[half], atol=0)
    exact = linear_attention(doubles[0].relu() + 1, doubles[1].relu(), doubles[2])
    out = linear_attention(q.relu() + 1, k.relu(), v)
    assert_close(out.double(), exact, rtol=HALVES[half], atol=0)


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize(
    ('folded', 'options'),
    [
        (True, {}),
        (False, {}),
        (None, dict(feature_map='exp')),
        (None, dict(feature_map='exp', injective=False)),
    ],
)
@torch.no_grad()
def test_layer_of_half_precision_weights_is_near_float64_and_keeps_its_dtype(folded, options, half):
    layer = randomize(InLineAttention(16, 2, **options)).to(half)
    layer.folded = folded
    x = image(1, 6_000, 16).to(half)
    out = layer(x, (60, 100))
    assert out.dtype == half
    assert error(out, layer.double()(x.double(), (60, 100))) < HALVES[half]


@torch.no_grad()
def test_cells_of_a_window_are_counted_in_float32():
    # 87,290 cells of the map in one window: more than float16 can say.
    layer = randomize(InLineAttention(4, 2, window_size=300, shifted=True)).half()
    x = image(1, 301 * 290, 4).half()
    out = layer(x, (301, 290))
    assert error(out, layer.double()(x.double(), (301, 290))) < HALVES[torch.float16]


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize('options', [{}, dict(feature_map='exp', injective=False)])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_backbone_under_autocast_is_finite_and_near_float64(backbone, options, half):
    model = build(backbone, **options).eval()
    images = image(1, 3, 160, 224)
    exact = copy.deepcopy(model).double()(images.double())
    for inference in (False, True):
        with torch.autocast('cpu', dtype=half), torch.inference_mode(inference):
            maps = model(images)
        for feature, expected in zip(maps, exact, strict=True):
            assert error(feature, expected) < 2 * HALVES[half]


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize('backbone', BACKBONES)
def test_training_under_autocast_gives_finite_gradients(backbone, half):
    model = build(backbone, with_cp=True).train()
    with torch.autocast('cpu', dtype=half):
        maps = model(image(2, 3, 64, 96))
    sum(feature.float().mean() for feature in maps).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
