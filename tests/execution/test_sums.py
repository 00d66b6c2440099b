"""Sums over tokens in inference: their values, and that they do not depend on the order."""

import pytest
import torch
from torch.testing import assert_close

from helpers.tiny import randomize
from mminline import execution
from mminline.execution import cache, decision
from mminline.execution.sums import (
    centred_sums,
    make_kernel,
    merge_centred_sums,
    merge_rows,
    sum_rows,
)
from mminline.layers import Block, InLineAttention

CHANNELS = 24
GRID = (6, 10)


def reference(left, right):
    left, right = left.double(), right.double()
    mean = right.mean(dim=-2, keepdim=True)
    return mean, left.transpose(-2, -1) @ (right - mean) / left.shape[-2]


@pytest.mark.parametrize('offset', [0, 100])
@pytest.mark.parametrize('num_extra_tokens', [0, 2])
@pytest.mark.parametrize('width', [1, 5, 30])
def test_sums_of_bands_make_the_mean_and_the_covariance(
    width, num_extra_tokens, offset, monkeypatch
):
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 7 * CHANNELS**2)
    torch.manual_seed(0)
    x = torch.randn(1, num_extra_tokens + 60, CHANNELS) + offset
    bands = x.split([num_extra_tokens + 30, 30], dim=1)
    exact = reference(x, x)

    extra = num_extra_tokens, 0
    sums = [sum_rows(*pair, width, count) for *pair, count in zip(bands, bands, extra, strict=True)]
    found = merge_rows(sums, (60 // width, width), num_extra_tokens)
    lengths = [band.shape[1] for band in bands]
    centred = merge_centred_sums([centred_sums(band) for band in bands], GRID, lengths)

    for mean, covariance in (found, centred):
        assert mean.dtype == covariance.dtype == torch.float32
        assert_close(mean, exact[0].float(), rtol=2e-7, atol=1e-7)
        # A mean of 100 is known to 4e-6 in float32, and tokens are measured from it.
        assert_close(covariance, exact[1].float(), rtol=1e-5, atol=2e-7 * (1 + offset))


def test_keys_and_values_of_several_heads_have_a_covariance_each():
    torch.manual_seed(0)
    keys, values = torch.randn(2, 3, 61, 4) + 3, torch.randn(2, 3, 61, 5)
    found = merge_rows([sum_rows(keys, values, 6, 1)], (10, 6), 1)
    for one, expected in zip(found, reference(keys, values), strict=True):
        assert_close(one, expected.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('offset', [0, 3, 30])
@pytest.mark.parametrize(('width', 'channels'), [(400, 64), (60, 320), (30, 512)])
def test_no_bit_depends_on_the_bands(width, channels, offset):
    # Sums of products of single tokens in float64 are rounded: some of these would differ.
    torch.manual_seed(0)
    x = torch.randn(1, 40 * width, channels) @ torch.randn(channels, channels) / 10 + offset

    def covariance_of(num_bands):
        bands = x.unflatten(1, (40, width)).tensor_split(num_bands, dim=1)
        sums = [sum_rows(band, band, width) for band in (band.flatten(1, 2) for band in bands)]
        return merge_rows(sums, (40, width))

    expected = covariance_of(1)
    for num_bands in (2, 3, 5, 7, 40):
        for one, other in zip(covariance_of(num_bands), expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ('hw_shape', 'form'),
    [((40, 30), 'streamed'), ((60, 20), 'streamed'), ((15, 5), 'fused')],
    ids=['long rows', 'short rows', 'queries and keys'],
)
@torch.inference_mode()
def test_order_of_rows_does_not_change_a_bit_in_float32(hw_shape, form, monkeypatch):
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 8 * hw_shape[1] * 2 * CHANNELS * 4)
    torch.manual_seed(0)
    block = Block(InLineAttention(CHANNELS, 3, local_residual=False), CHANNELS, 2).eval()
    x = torch.randn(1, *hw_shape, CHANNELS)
    order = torch.randperm(hw_shape[0])

    def run(x):
        x = x.flatten(1, 2)
        assert decision.choose(block, x, hw_shape).name == form
        return execution.run(block, x, hw_shape).view(1, *hw_shape, CHANNELS)

    assert torch.equal(run(x)[:, order], run(x[:, order]))


@torch.inference_mode()
def test_kernels_are_those_of_the_layer_with_the_same_bits_for_any_number_of_threads(set_threads):
    torch.manual_seed(0)
    layer, mean = randomize(InLineAttention(64, 2)), torch.randn(2, 1, 64)
    kernels = []
    for num_threads in (1, 2):
        set_threads(num_threads)
        kernels.append(make_kernel(layer, mean, in_float64=True))

    assert kernels[0].dtype == torch.float32
    assert torch.equal(*kernels)
    assert_close(kernels[0], layer.make_kernel(mean))
    assert_close(make_kernel(layer, mean, in_float64=False), kernels[0])
