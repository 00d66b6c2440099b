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
    merge_sums,
    sums_in_float64,
)
from mminline.layers import Block, InLineAttention

CHANNELS = 24
GRID = (6, 10)


def reference(x):
    x = x.double()
    mean = x.mean(dim=1, keepdim=True)
    return mean, (x - mean).transpose(1, 2) @ (x - mean) / x.shape[1]


@pytest.mark.parametrize('offset', [0, 100])
@pytest.mark.parametrize('width', [None, 5, 30])
def test_sums_of_bands_make_the_mean_and_the_covariance(width, offset, monkeypatch):
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 7 * CHANNELS)
    torch.manual_seed(0)
    x = torch.randn(1, 60, CHANNELS) + offset
    bands = x.split(30, dim=1)
    exact = reference(x)

    found = merge_sums([sums_in_float64(band, width) for band in bands], GRID, 60)
    centred = merge_centred_sums([centred_sums(band) for band in bands], GRID, [30, 30])

    for mean, covariance in (found, centred):
        assert mean.dtype == covariance.dtype == torch.float32
        assert_close(mean, exact[0].float(), rtol=2e-7, atol=1e-7)
        # A mean of 100 is known to 4e-6 in float32, and tokens are measured from it.
        assert_close(covariance, exact[1].float(), rtol=1e-5, atol=2e-7 * (1 + offset))


@pytest.mark.parametrize('width', [7, CHANNELS])
def test_means_halfway_between_two_numbers_are_rounded_alike_in_every_cut(width):
    torch.manual_seed(0)
    rows = torch.randint(2**18, 2**19, (7 * 64, 1, CHANNELS))
    rows[0] += (7 - rows.sum(dim=0)) % 14
    mean = rows.double().mean(dim=0)
    assert ((mean * 2**5) % 1 == 0.5).all()  # numbers of float32 of this size are 2**-5 apart
    x = rows.float().expand(-1, width, -1)

    def mean_of(num_bands):
        bands = [band.flatten(0, 1)[None] for band in x.tensor_split(num_bands)]
        sums = [sums_in_float64(band, width) for band in bands]
        return merge_sums(sums, GRID, len(rows) * width)[0]

    for num_bands in (1, 2, 3, 5, 11):
        assert torch.equal(mean_of(num_bands)[0], mean.float())


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
