"""Tokens in front of the grid: in the attention and its means, out of the 3x3 step."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from helpers.attention_layers import inline_layer, join_heads, split_heads
from helpers.tiny import gradients, image, randomize
from mminline import execution
from mminline.analysis.hooks import attention_hooks
from mminline.analysis.locality import measure_locality
from mminline.analysis.maps import weight_maps
from mminline.execution import cache, exported, streamed
from mminline.layers import Block, InLineAttention, SoftmaxAttention, reference

GRID, EXTRA, CHANNELS, HEADS = (6, 9), 2, 8, 2
OPTIONS = [
    {},
    dict(local_residual=False),
    dict(feature_map='relu'),
    dict(feature_map='exp', injective=False),
]


def make_layer(folded=None, **options):
    layer = randomize(InLineAttention(CHANNELS, HEADS, num_extra_tokens=EXTRA, **options))
    layer.folded = folded
    return layer.double()


def tokens(batch=2, grid=GRID):
    return image(batch, EXTRA + grid[0] * grid[1], CHANNELS, dtype=torch.float64)


def softmax_over_all(layer, x_BLC):
    q, k, v = (split_heads(part, HEADS) for part in layer.qkv(x_BLC).chunk(3, dim=-1))
    weights = reference.softmax_weights(q, k, q.shape[-1] ** -0.5)
    return layer.proj(join_heads(weights @ v))


def backward(layer, form, x):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = form(x)
    out.backward(image(*out.shape, dtype=out.dtype))
    return {'out': out, 'x': x.grad, **gradients(layer)}


@pytest.mark.parametrize('batch', [1, 10])
@pytest.mark.parametrize('folded', [True, False])
@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_every_form_equals_explicit_weights_with_gradients(options, folded, batch):
    layer, x = make_layer(folded, **options), tokens(batch)
    expected = backward(layer, lambda x: inline_layer(layer, x, GRID), x)
    for form in (
        lambda x: layer(x, GRID),
        lambda x: execution.run(layer, x, GRID),
        lambda x: exported.run(layer, x, GRID, exporting=True),
        lambda x: exported.run(layer, x, GRID, exporting=False),
    ):
        assert_close(backward(layer, form, x), expected)


def test_extra_tokens_get_no_local_residual():
    layer, x = make_layer(), tokens()
    bare = make_layer(local_residual=False)
    bare.load_state_dict(layer.state_dict(), strict=False)
    difference = layer(x, GRID) - bare(x, GRID)
    assert_close(difference[:, :EXTRA], torch.zeros_like(difference[:, :EXTRA]))
    assert difference[:, EXTRA:].abs().amax(dim=-1).min() > 1e-4


@pytest.mark.parametrize('grid', [(1, 40), (40, 1), (9, 23)])
@pytest.mark.parametrize('local_residual', [True, False])
def test_streamed_block_equals_the_ordinary_one(grid, local_residual, monkeypatch):
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 64 * 64 * 8)
    block = randomize(Block(make_layer(local_residual=local_residual), CHANNELS, 4)).double().eval()
    x, untouched = tokens(grid=grid), tokens(grid=grid)
    with torch.no_grad():
        assert execution.choose(block, x, grid).name == 'streamed'
        out = streamed.run(block, x, grid, one_pass=False, dtype=x.dtype)
    assert_close(out, block(x, grid), rtol=1e-10, atol=1e-10)
    assert torch.equal(x, untouched)


@pytest.mark.parametrize('streaming', [None, False])
def test_softmax_over_the_whole_map_takes_them_too(streaming):
    layer = SoftmaxAttention(CHANNELS, HEADS, window_size=None, num_extra_tokens=EXTRA)
    layer, x = randomize(layer).double(), tokens()
    expected = backward(layer, lambda x: softmax_over_all(layer, x), x)
    for form in (
        lambda x: layer(x, GRID),
        lambda x: execution.run(layer, x, GRID, streaming),
        lambda x: exported.run(layer, x, GRID, exporting=True),
    ):
        assert_close(backward(layer, form, x), expected)


@pytest.mark.parametrize('kind', [InLineAttention, SoftmaxAttention])
def test_bad_numbers_and_windows_are_refused(kind):
    for number in (-1, 0.5):
        with pytest.raises(ValueError, match=f'from 0 on, got num_extra_tokens={number}'):
            kind(CHANNELS, HEADS, window_size=None, num_extra_tokens=number)
    with pytest.raises(ValueError, match='has to be None .*window_size=7 and num_extra_tokens=1'):
        kind(CHANNELS, HEADS, window_size=7, num_extra_tokens=1)
    layer = kind(CHANNELS, HEADS, window_size=None, num_extra_tokens=EXTRA)
    with pytest.raises(ValueError, match=r'\(B, 2 \+ H \* W, C\) = \(B, 56, 8\).*got \(1, 54, 8\)'):
        layer(torch.zeros(1, 54, CHANNELS), GRID)


def look(layer):
    seen = []
    with torch.no_grad(), attention_hooks({'': layer}, lambda _, weights: seen.append(weights)):
        layer(tokens(1), GRID)
    return seen[0]


@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_analysis_gives_the_output_of_the_layer(options):
    layer = make_layer(**options)
    attention = look(layer)
    assert attention.cell_BL[0].tolist() == [-1] * EXTRA + list(range(54))
    assert_close(attention.finish(attention.mix()), layer(tokens(1), GRID))


def test_analysis_looks_for_neighbours_on_the_grid():
    attention = look(make_layer())
    index_LK, seen_BLK = attention.neighbours()
    assert not seen_BLK[:, :EXTRA].any()
    row, column = 2, 3
    around = index_LK[EXTRA + row * GRID[1] + column].view(3, 3) - EXTRA
    cells = torch.arange(54).view(GRID)
    assert torch.equal(around, cells[row - 1 : row + 2, column - 1 : column + 2])
    assert measure_locality(attention).queries == 54
    maps = weight_maps(attention, (row, column))
    weights = attention.weights()[0, :, EXTRA + row * GRID[1] + column, EXTRA:]
    assert_close(maps.attention, weights.unflatten(1, GRID))
    kernel = attention.kernel_BC33[0].unflatten(0, (HEADS, -1)).mean(dim=1)
    expected = F.pad(kernel, (column - 1, GRID[1] - column - 2, row - 1, GRID[0] - row - 2))
    assert_close(maps.residual, expected)
