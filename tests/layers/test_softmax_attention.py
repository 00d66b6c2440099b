"""Softmax windows against softmax over the whole padded grid with strangers hidden."""

import pytest
import torch
from torch.testing import assert_close

from helpers.attention_layers import softmax_layer
from helpers.tiny import gradients, image, randomize
from mminline.layers import SoftmaxAttention

# Smaller than a window, one window, shorter side of 7 and of 8, several windows with padding.
GRIDS = [(1, 1), (1, 9), (5, 6), (7, 7), (7, 15), (8, 8), (15, 8), (14, 14), (16, 22)]


def make_layer(**options):
    return randomize(SoftmaxAttention(6, 2, **options)).double()


def tokens(hw_shape, batch=2):
    return image(batch, hw_shape[0] * hw_shape[1], 6, dtype=torch.float64)


@pytest.mark.parametrize('shifted', [False, True])
@pytest.mark.parametrize('hw_shape', GRIDS)
def test_windows_equal_softmax_over_the_grid(hw_shape, shifted):
    layer, x = make_layer(shifted=shifted), tokens(hw_shape)
    shift = 3 if shifted and min(hw_shape) > 7 else 0
    assert_close(layer(x, hw_shape), softmax_layer(layer, x, hw_shape, shift))


@pytest.mark.parametrize('window_size', [2, 5, 8])
def test_windows_of_another_side_work(window_size):
    layer, x = make_layer(window_size=window_size, shifted=True), tokens((9, 13))
    expected = softmax_layer(layer, x, (9, 13), shift=window_size // 2)
    assert_close(layer(x, (9, 13)), expected)


@pytest.mark.parametrize('shifted', [False, True])
def test_gradients_equal_those_of_softmax_over_the_grid(shifted):
    layer = make_layer(shifted=shifted)
    results = []
    for form in (layer, lambda x, hw: softmax_layer(layer, x, hw, shift=3 * shifted)):
        layer.zero_grad()
        x = tokens((8, 15)).requires_grad_()
        form(x, (8, 15)).backward(tokens((8, 15)))
        results.append({'x': x.grad, **gradients(layer)})
    assert_close(*results)


def test_padded_cells_take_part_as_keys():
    # As in Swin: a map of 6 x 6 does not equal what its 36 cells would give among themselves.
    layer = make_layer()
    with torch.no_grad():
        layer.qkv.bias.copy_(10 * layer.qkv.bias)
    x = tokens((6, 6))
    q, k, v = (
        part.unflatten(-1, (2, -1)).transpose(1, 2) for part in layer.qkv(x).chunk(3, dim=-1)
    )
    places = torch.cartesian_prod(torch.arange(6), torch.arange(6))
    dy, dx = (places[:, None] - places[None] + 6).unbind(-1)
    bias = layer.relative_position_bias_table[dy * 13 + dx].permute(2, 0, 1)
    weights = (q @ k.transpose(-2, -1) * 3**-0.5 + bias).softmax(dim=-1)
    alone = layer.proj((weights @ v).transpose(1, 2).flatten(-2))
    assert (layer(x, (6, 6)) - alone).abs().max() > 1e-2


def test_bias_table_has_a_row_for_each_offset_of_query_and_key():
    layer = make_layer()
    assert layer.relative_position_bias_table.shape == (169, 2)
    assert {'qkv.weight', 'qkv.bias', 'proj.weight', 'proj.bias'} == set(layer.state_dict()) - {
        'relative_position_bias_table'
    }


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match='multiple of num_heads, got embed_dims=6 and num_heads=4'):
        SoftmaxAttention(6, 4)
