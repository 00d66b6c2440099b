"""Sums over tokens in inference: their values, and that they do not depend on the order."""

import pytest
import torch
from torch.testing import assert_close

from mminline import execution
from mminline.execution import cache, decision
from mminline.execution.sums import mean_and_products_in_float64
from mminline.layers import Block, InLineAttention

CHANNELS = 24


def reference(x):
    x = x.double()
    mean = x.mean(dim=1, keepdim=True)
    return mean, (x - mean).transpose(1, 2) @ (x - mean)


@pytest.mark.parametrize(
    ('width', 'offset', 'error'),
    [(None, 0, 1e-12), (None, 100, 1e-8), (5, 100, 1e-8), (30, 0, 2e-5), (30, 100, 2e-3)],
)
def test_mean_and_products_are_those_of_float64(width, offset, error, monkeypatch):
    # Sums within long rows are in float32, and have its digits.
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 7 * CHANNELS)
    torch.manual_seed(0)
    x = torch.randn(1, 60, CHANNELS) + offset

    mean, products = mean_and_products_in_float64(x, width)

    assert mean.dtype == products.dtype == torch.float64
    expected_mean, expected_products = reference(x)
    assert_close(mean, expected_mean, rtol=0, atol=error)
    assert_close(products, expected_products, rtol=0, atol=error)


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
