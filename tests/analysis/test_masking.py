"""Hidden keys: none, all, the square around the query, as many random ones."""

import pytest
import torch
from torch.testing import assert_close

from helpers.hooked_layers import GRID, LAYERS, attention_of, build, look, tokens
from helpers.tiny import build as build_backbone
from helpers.tiny import image
from mminline.analysis.hooks import attention_hooks, find_layers
from mminline.analysis.masking import Mask, hidden_keys, masked_attention
from mminline.layers import reference
from mminline.models import InLinePVT, InLineSwin

EVERYTHING = slice(None)


@pytest.mark.parametrize('name', LAYERS)
@torch.no_grad()
def test_hiding_nothing_changes_nothing(name):
    layer, x = build(name), tokens()
    expected = layer(x, GRID)
    with masked_attention({'layer': layer}, Mask('none')):
        assert_close(layer(x, GRID), expected)


@pytest.mark.parametrize('backbone', [InLinePVT, InLineSwin])
@torch.no_grad()
def test_a_whole_backbone_with_nothing_hidden_is_the_ordinary_one(backbone):
    model = build_backbone(backbone).eval().double()
    picture = image(2, 3, 70, 50, dtype=torch.float64)
    expected = model(picture)
    with masked_attention(find_layers(model), Mask('none')):
        assert_close(model(picture), expected)


@pytest.mark.parametrize('name', LAYERS)
def test_hiding_everything_leaves_the_residual_or_nothing(name):
    _, attention = look(build(name), tokens())
    found = attention.mix(hide=lambda groups, rows: attention.visible(groups, rows))

    expected = torch.zeros_like(found)
    if attention.kernel_BC33 is not None:
        values = attention.v_BNMD.transpose(1, 2).flatten(-2)
        expected = reference.local_residual(values, attention.kernel_BC33, attention.grid)
    assert_close(found, expected)


@pytest.mark.parametrize('kind', ['inline', 'linear', 'softmax'])
def test_a_hidden_key_is_as_good_as_none(kind):
    q, k, v = image(3, 6, 4, dtype=torch.float64).abs()
    kept = torch.tensor([True, False, True, True, False, True])
    attention = attention_of(kind, q, k, v, scale=0.5)
    without = attention_of(kind, q, k[kept], v[kept], scale=0.5)

    found = attention.weights(visible_BLM=kept.expand(1, 6, -1))
    assert_close(found[..., kept], without.weights())
    assert found[..., ~kept].abs().max() == 0


def test_local_masks_hide_the_square_around_a_query():
    attention = attention_of('softmax', torch.zeros(99, 1), torch.zeros(99, 1), grid=GRID)
    hidden = hidden_keys(attention, Mask('local', 5), EVERYTHING, EVERYTHING)[0]
    rows, columns = torch.arange(99) // 11, torch.arange(99) % 11
    distance = torch.maximum((rows[:, None] - rows).abs(), (columns[:, None] - columns).abs())
    assert torch.equal(hidden, distance <= 2)


@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.parametrize('side', [3, 7])
def test_random_masks_hide_as_many_visible_keys_as_local_ones(name, side):
    _, attention = look(build(name), tokens())
    local, random = (
        hidden_keys(attention, Mask(kind, side), EVERYTHING, EVERYTHING)
        for kind in ('local', 'random')
    )
    assert torch.equal(local.sum(-1), random.sum(-1))
    assert not (random & ~attention.visible()).any()
    assert side == 7 or not torch.equal(local, random)


def test_random_masks_hide_each_key_as_often():
    attention = attention_of('softmax', torch.zeros(99, 1), torch.zeros(99, 1), grid=GRID)
    generator = torch.Generator().manual_seed(0)
    times = sum(
        hidden_keys(attention, Mask('random', 3), EVERYTHING, EVERYTHING, generator)[0, 50].int()
        for _ in range(1000)
    )
    assert times.sum() == 9000
    # 1000 draws with probability 1/11: standard deviation 9.
    assert (times - 1000 / 11).abs().max() < 40


@torch.no_grad()
def test_random_masks_repeat_with_their_seed():
    layer, x = build('inline'), tokens()
    outputs = []
    for seed in (0, 0, 1):
        with masked_attention({'layer': layer}, Mask('random', 3), seed=seed):
            outputs.append(layer(x, GRID))

    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


def test_an_unknown_mask_is_refused():
    attention = attention_of('softmax', torch.zeros(4, 1), torch.zeros(4, 1))
    with pytest.raises(ValueError, match="'none', 'local' or 'random', got kind='square'"):
        hidden_keys(attention, Mask('square', 3), EVERYTHING, EVERYTHING)


@torch.no_grad()
def test_what_only_looks_changes_nothing():
    layer, x = build('inline'), tokens()
    with attention_hooks({'layer': layer}, lambda name, attention: None):
        found = layer(x, GRID)
    assert torch.equal(found, layer(x, GRID))
