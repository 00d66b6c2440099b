"""Embeddings: from maps to tokens, with padding, and positions for any grid."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from helpers.tiny import image, randomize
from mminline.layers import PatchEmbed, PatchMerging, resize_position


@pytest.mark.parametrize(('height', 'width'), [(4, 4), (8, 12), (9, 6), (1, 1)])
def test_patch_embedding_is_a_linear_map_of_each_zero_padded_patch(height, width):
    layer = randomize(PatchEmbed(3, 10, patch_size=4)).double()
    x = image(2, 3, height, width, dtype=torch.float64)
    tokens, hw_shape = layer(x)

    rows, columns = -(-height // 4), -(-width // 4)
    padded = F.pad(x, (0, 4 * columns - width, 0, 4 * rows - height))
    patches = padded.unflatten(3, (columns, 4)).unflatten(2, (rows, 4)).permute(0, 2, 4, 1, 3, 5)
    linear = patches.flatten(3) @ layer.proj.weight.flatten(1).T + layer.proj.bias
    assert hw_shape == (rows, columns)
    assert_close(
        tokens, F.layer_norm(linear, (10,), layer.norm.weight, layer.norm.bias).flatten(1, 2)
    )


@pytest.mark.parametrize(('height', 'width'), [(2, 2), (4, 6), (5, 3), (1, 1), (1, 4)])
def test_patch_merging_concatenates_down_the_left_column_then_down_the_right_one(height, width):
    layer = randomize(PatchMerging(3, 5)).double()
    x = image(2, 3, height, width, dtype=torch.float64)
    tokens, hw_shape = layer(x)

    padded = F.pad(x, (0, width % 2, 0, height % 2))
    neighbours = [padded[:, :, dy::2, dx::2] for dy, dx in ((0, 0), (1, 0), (0, 1), (1, 1))]
    merged = torch.cat(neighbours, dim=1).permute(0, 2, 3, 1).flatten(1, 2)
    normed = F.layer_norm(merged, (12,), layer.norm.weight, layer.norm.bias)
    assert hw_shape == (-(-height // 2), -(-width // 2))
    assert_close(tokens, normed @ layer.reduction.weight.T)


def test_position_of_its_own_grid_is_untouched():
    position = image(1, 5, 7, 4)
    assert torch.equal(resize_position(position, (5, 7)), position.flatten(1, 2))


@pytest.mark.parametrize('hw_shape', [(7, 5), (1, 35), (10, 14), (3, 3), (1, 1)])
def test_position_of_another_grid_is_resized_bilinearly(hw_shape):
    # (7, 5) and (1, 35) hold as many cells as (5, 7): counting them would not tell.
    position = image(1, 5, 7, 4)
    expected = F.interpolate(position.permute(0, 3, 1, 2), hw_shape, mode='bilinear')
    assert_close(resize_position(position, hw_shape), expected.flatten(2).transpose(1, 2))
