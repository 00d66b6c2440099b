"""Values and covariance in one step, against the products written out."""

import pytest
import torch
from torch.testing import assert_close

from mminline.execution import Group, cache, pack
from mminline.execution.covariance import (
    packed_values_and_covariance,
    sum_of_products,
    values_and_covariance,
)


def random_inputs(num_tokens=7, channels=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, num_tokens, channels), (channels, channels), (channels,)]
    return [torch.randn(size, generator=generator, dtype=dtype) for size in shapes]


def by_hand(x, weight, bias):
    centred = x - x.mean(dim=1, keepdim=True)
    return x @ weight.T + bias, centred.transpose(1, 2) @ centred / x.shape[1]


def in_one_step(x, weight, bias):
    return values_and_covariance(x, x.mean(dim=1, keepdim=True), weight, bias, one_pass=False)


@pytest.mark.parametrize('num_tokens', [1, 2, 7])
def test_values_and_covariance_equal_the_products_in_gradients_too(num_tokens):
    inputs = [part.requires_grad_() for part in random_inputs(num_tokens)]
    fast, slow = in_one_step(*inputs), by_hand(*inputs)
    cotangents = [torch.randn_like(part) for part in slow]

    assert_close(fast, slow)
    assert_close(
        torch.autograd.grad(fast, inputs, cotangents), torch.autograd.grad(slow, inputs, cotangents)
    )


def test_first_and_second_derivatives_are_those_of_finite_differences():
    inputs = [part.requires_grad_() for part in random_inputs(3, 2)]
    torch.autograd.gradcheck(in_one_step, inputs)
    torch.autograd.gradgradcheck(in_one_step, inputs)


def packed(x, weight, bias):
    """The same for images of two sizes: all of the first one's tokens, and one less."""
    groups = [Group(1, (1, x.shape[1])), Group(1, (1, x.shape[1] - 1))]
    parts = [x[:1], x[1:, 1:]]
    means = torch.cat([part.mean(dim=1, keepdim=True) for part in parts])
    return packed_values_and_covariance(pack(parts), means, weight, bias, groups, one_pass=False)


def test_packed_tokens_have_the_values_and_covariances_of_each_image():
    inputs = [part.requires_grad_() for part in random_inputs()]
    x, *rest = inputs
    pairs = [by_hand(part, *rest) for part in (x[:1], x[1:, 1:])]
    slow = (pack([values for values, _ in pairs]), torch.cat([each for _, each in pairs]))
    fast = packed(*inputs)
    cotangents = [torch.randn_like(part) for part in slow]

    assert_close(fast, slow)
    assert_close(
        torch.autograd.grad(fast, inputs, cotangents), torch.autograd.grad(slow, inputs, cotangents)
    )
    inputs = [part.requires_grad_() for part in random_inputs(3, 2)]
    torch.autograd.gradgradcheck(packed, inputs)


@pytest.mark.parametrize('channels', [1, 2, 5])
@pytest.mark.parametrize('num_tokens', [1, 3, 8])
def test_sums_of_products_over_chunks_and_halves_are_those_of_one_product(
    monkeypatch, channels, num_tokens
):
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 3 * channels)
    x = torch.randn(2, num_tokens, channels, dtype=torch.float64)
    centre = torch.randn(2, 1, channels, dtype=torch.float64)
    centred = x - centre
    assert_close(sum_of_products(x, centre), centred.transpose(1, 2) @ centred)
