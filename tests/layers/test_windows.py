"""Windows: cut, shifted, put together again, and InLine attention inside them."""

import pytest
import torch
from torch.testing import assert_close

from helpers.attention_layers import inline_layer, windowed_inline_layer
from helpers.tiny import gradients, image, randomize
from mminline.layers import InLineAttention
from mminline.layers.windows import merge_windows, split_windows, window_shift

GRIDS = [(1, 9), (3, 3), (4, 4), (5, 5), (5, 8), (8, 8), (9, 7), (4, 11)]


@pytest.mark.parametrize('shift', [0, 1, 2])
@pytest.mark.parametrize('hw_shape', [(1, 1), (4, 4), (5, 9), (8, 12), (7, 3)])
def test_merge_undoes_split(hw_shape, shift):
    x = image(2, hw_shape[0] * hw_shape[1], 3)
    windows = split_windows(x, hw_shape, window=4, shift=shift)
    assert windows.shape == (2, -(-hw_shape[0] // 4), -(-hw_shape[1] // 4), 16, 3)
    assert torch.equal(merge_windows(windows, hw_shape, window=4, shift=shift), x)


def test_windows_are_rolled_up_and_left_and_padded_at_bottom_and_right():
    x = torch.arange(1, 13).view(1, 12, 1)
    windows = split_windows(x, (3, 4), window=2, shift=1)[0, :, :, :, 0].tolist()
    # Padded to 4 x 4 with a row of zeros; after the roll the first row and column come last.
    assert windows == [[[6, 7, 10, 11], [8, 5, 12, 9]], [[0, 0, 2, 3], [0, 0, 4, 1]]]


@pytest.mark.parametrize(
    ('hw_shape', 'shift'),
    [((7, 7), 0), ((7, 30), 0), ((30, 6), 0), ((8, 8), 3), ((8, 30), 3), ((14, 14), 3)],
)
def test_grid_whose_shorter_side_is_one_window_is_not_shifted(hw_shape, shift):
    assert window_shift(hw_shape, 7, shifted=True) == shift
    assert window_shift(hw_shape, 7, shifted=False) == 0


def make_layer(window, **options):
    layer = randomize(InLineAttention(6, 2, window_size=window, **options))
    return layer.double()


def tokens(hw_shape, batch=2):
    return image(batch, hw_shape[0] * hw_shape[1], 6, dtype=torch.float64)


@pytest.mark.parametrize('shifted', [False, True])
@pytest.mark.parametrize('hw_shape', GRIDS)
def test_windows_equal_a_loop_over_windows_without_padding(hw_shape, shifted):
    layer, x = make_layer(window=4, shifted=shifted), tokens(hw_shape)
    if max(hw_shape) <= 4:
        expected = inline_layer(layer, x, hw_shape)
    else:
        shift = 2 if shifted and min(hw_shape) > 4 else 0
        expected = windowed_inline_layer(layer, x, hw_shape, shift)
    assert_close(layer(x, hw_shape), expected)


@pytest.mark.parametrize('local_residual', [True, False])
@pytest.mark.parametrize(
    ('feature_map', 'injective'),
    [('relu', True), ('leaky_relu', True), ('exp', True), ('relu', False), ('exp', False)],
)
def test_padding_stays_out_of_windows_with_every_switch(feature_map, injective, local_residual):
    # exp(0) is 1: a padded key that got through a feature map would count.
    layer = make_layer(
        4, shifted=True, feature_map=feature_map, injective=injective, local_residual=local_residual
    )
    x = tokens((5, 7))
    assert_close(layer(x, (5, 7)), windowed_inline_layer(layer, x, (5, 7), shift=2))


def test_gradients_through_windows_equal_those_of_the_loop():
    layer = make_layer(4, shifted=True)
    results = []
    for form in (layer, lambda x, hw: windowed_inline_layer(layer, x, hw, shift=2)):
        layer.zero_grad()
        x = tokens((6, 9)).requires_grad_()
        form(x, (6, 9)).backward(tokens((6, 9)))
        results.append({'x': x.grad, **gradients(layer)})
    assert_close(*results)


@pytest.mark.parametrize('hw_shape', [(5, 7), (7, 7), (1, 1)])
def test_window_not_smaller_than_the_grid_is_the_whole_map(hw_shape):
    x = tokens(hw_shape)
    for window in (7, 8, 56):
        for shifted in (False, True):
            layer = make_layer(window, shifted=shifted)
            assert_close(layer(x, hw_shape), inline_layer(layer, x, hw_shape))


def test_windows_of_one_image_do_not_see_each_other_nor_other_images():
    layer, x = make_layer(window=4), tokens((8, 8))
    changed = x.clone()
    changed[1, 0] += 1
    differs = (layer(x, (8, 8)) - layer(changed, (8, 8))).abs().amax(dim=-1) > 1e-9
    assert not differs[0].any()
    assert differs[1].view(8, 8)[:4, :4].all()
    assert differs.sum() == 16
