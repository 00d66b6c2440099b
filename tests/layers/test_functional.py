"""The pure functions against explicit weights: values, gradients, odd shapes."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from mminline.layers import (
    folded_inline_attention,
    inline_attention,
    linear_attention,
    local_residual,
    reference,
)

GRIDS = [(1, 1), (1, 7), (5, 1), (3, 5)]


def random_qkv(num_queries=6, num_keys=None, batch=2, heads=3, channels=4):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(batch, heads, num_tokens, channels, dtype=torch.float64, generator=generator)
        for num_tokens in (num_queries, num_keys or num_queries, num_keys or num_queries)
    )


def random_fold(num_tokens, channels=6):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, num_tokens, channels), (3 * channels, channels), (3 * channels,)]
    return tuple(torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes)


def fold(x, weight, bias, num_heads=2, scale=0.7):
    mean = x.mean(dim=1, keepdim=True)
    return folded_inline_attention(x, mean, weight, bias, num_heads, scale)[0]


def plain(x, weight, bias, num_heads=2, scale=0.7):
    q, k, v = (x @ weight.T + bias).chunk(3, dim=-1)
    heads = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in (q, k, v))
    return inline_attention(*heads, scale).transpose(1, 2).flatten(-2)


def test_inline_weights_follow_the_formula_of_the_paper_number_by_number():
    q, k, _ = random_qkv(num_queries=2, num_keys=3, batch=1, heads=1)
    weights = reference.inline_weights(q, k, scale=0.5)[0, 0]

    for i in range(2):
        scores = [0.5 / 3 * float(q[0, 0, i] @ k[0, 0, j]) for j in range(3)]
        for j in range(3):
            expected = scores[j] - sum(scores) / 3 + 1 / 3
            assert float(weights[i, j]) == pytest.approx(expected, rel=1e-12)


def test_weights_of_every_kind_sum_to_one():
    q, k, _ = random_qkv(num_queries=3, num_keys=5)
    for weights in (
        reference.inline_weights(q, k, 0.5),
        reference.linear_weights(q.exp(), k.exp()),
        reference.softmax_weights(q, k, 0.5),
    ):
        assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(('num_queries', 'num_keys'), [(1, 1), (1, 5), (6, 1), (7, 7), (4, 9)])
def test_inline_attention_equals_its_explicit_weights(num_queries, num_keys):
    q, k, v = random_qkv(num_queries, num_keys)
    assert_close(inline_attention(q, k, v, 0.7), reference.inline_weights(q, k, 0.7) @ v)


@pytest.mark.parametrize(('num_queries', 'num_keys'), [(1, 1), (1, 5), (6, 1), (7, 7), (4, 9)])
def test_linear_attention_equals_its_explicit_weights(num_queries, num_keys):
    q, k, v = random_qkv(num_queries, num_keys)
    q, k = q.exp(), k.relu()
    assert_close(linear_attention(q, k, v), reference.linear_weights(q, k) @ v)


@pytest.mark.parametrize('attend', [lambda *qkv: inline_attention(*qkv, 0.7), linear_attention])
def test_attention_matches_its_explicit_weights_in_gradients_too(attend):
    qkv = [part.abs().requires_grad_() for part in random_qkv(5, 7)]
    q, k, v = qkv
    if attend is linear_attention:
        weights = reference.linear_weights(q, k)
    else:
        weights = reference.inline_weights(q, k, 0.7)
    cotangent = torch.randn_like(q)
    fast = torch.autograd.grad(attend(q, k, v), qkv, cotangent)
    slow = torch.autograd.grad(weights @ v, qkv, cotangent)
    assert_close(fast, slow)


def test_linear_attention_of_a_query_without_any_weight_is_finite():
    q, k, v = random_qkv()
    out = linear_attention(torch.zeros_like(q), k.relu(), v)
    assert_close(out, torch.zeros_like(out))


@pytest.mark.parametrize('kind', ['inline', 'linear'])
def test_keys_that_are_not_valid_are_as_good_as_absent(kind):
    q, k, v = (part.abs() for part in random_qkv(num_queries=4, num_keys=9))
    valid = torch.tensor([1, 0, 1, 1, 0, 0, 1, 1, 0], dtype=torch.float64).view(1, 1, 9, 1)
    kept = valid.flatten().bool()
    if kind == 'inline':
        out = inline_attention(q, k, v, 0.7, valid)
        expected = inline_attention(q, k[:, :, kept], v[:, :, kept], 0.7)
    else:
        out = linear_attention(q, k, v, valid)
        expected = linear_attention(q, k[:, :, kept], v[:, :, kept])
    assert_close(out, expected)


def test_inline_attention_tells_parallel_queries_apart():
    # Plain linear attention divides by the sum of its weights, so q and 2q look the same to it:
    # the defect that InLine attention removes.
    q, k, v = random_qkv()
    once, twice = (inline_attention(factor * q, k, v, scale=0.5) for factor in (1, 2))
    assert (once - twice).abs().amax(dim=-1).min() > 1e-3


def test_linear_attention_takes_parallel_queries_for_one():
    q, k, v = (part.abs() for part in random_qkv())
    once, twice = (linear_attention(factor * q, k, v) for factor in (1, 2))
    assert_close(once, twice, rtol=0, atol=1e-6)


@pytest.mark.parametrize('num_tokens', [1, 2, 5, 12, 35])
def test_folded_form_equals_the_plain_form(num_tokens):
    inputs = random_fold(num_tokens)
    assert_close(fold(*inputs), plain(*inputs))


def test_folded_form_returns_the_values_beside_the_mixed_ones():
    x, weight, bias = random_fold(num_tokens=15)
    mean = x.mean(dim=1, keepdim=True)
    values = folded_inline_attention(x, mean, weight, bias, 2, 0.7)[1]
    assert_close(values, x @ weight[12:].T + bias[12:])


def test_folded_form_equals_the_plain_form_in_gradients_too():
    inputs = [part.requires_grad_() for part in random_fold(num_tokens=15)]
    cotangent = torch.randn_like(inputs[0])
    folded = torch.autograd.grad(fold(*inputs), inputs, cotangent)
    usual = torch.autograd.grad(plain(*inputs), inputs, cotangent)
    assert_close(folded, usual)


def test_folded_form_keeps_its_digits_when_channels_have_an_offset():
    # A sum of products minus a product of sums would lose them.
    inputs = random_fold(num_tokens=2000)
    inputs[0].add_(10 * torch.arange(1, 7))
    single = [part.float() for part in inputs]
    exact = plain(*(part.double() for part in single))
    errors = [(form(*single) - exact).abs().max() / exact.std() for form in (fold, plain)]
    assert errors[0] < max(4 * errors[1], 1e-5)


def random_maps(hw_shape, batch=2, channels=5):
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, hw_shape[0] * hw_shape[1], channels), (batch, channels, 3, 3)]
    return tuple(
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes
    )


# One convolution for each image, and one for all.
@pytest.mark.parametrize('batch', [1, 3, 20])
@pytest.mark.parametrize('hw_shape', GRIDS)
def test_local_residual_equals_a_sum_over_nine_neighbours(hw_shape, batch):
    v, kernel = random_maps(hw_shape, batch)
    offset = torch.randn(batch, 1, 5, dtype=torch.float64, requires_grad=True)
    fast = local_residual(v, kernel, hw_shape, offset)
    slow = reference.local_residual(v, kernel, hw_shape) + offset

    assert_close(fast, slow)
    cotangent = torch.randn_like(fast)
    assert_close(
        torch.autograd.grad(fast, (v, kernel, offset), cotangent),
        torch.autograd.grad(slow, (v, kernel, offset), cotangent),
    )
    assert_close(local_residual(v, kernel, hw_shape), slow - offset)


@pytest.mark.parametrize(('batch', 'count'), [(2, 2), (9, 1)])
def test_the_3x3_step_of_many_images_is_one_convolution(batch, count, monkeypatch):
    calls, convolve = [], F.conv2d
    monkeypatch.setattr(
        F, 'conv2d', lambda *args, **kw: calls.append(args) or convolve(*args, **kw)
    )
    local_residual(*random_maps((4, 4), batch), (4, 4))

    assert len(calls) == count


def test_local_residual_reads_the_kernel_without_a_flip():
    v = torch.zeros(1, 9, 1, dtype=torch.float64)
    v[0, 4] = 1
    kernel = torch.arange(9, dtype=torch.float64).view(1, 1, 3, 3)
    # The upper left neighbour sees the middle cell at its lower right: the last number.
    assert local_residual(v, kernel, (3, 3)).flatten().tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize('num_tokens', [1, 4])
def test_gradients_of_attention_are_those_of_finite_differences(num_tokens):
    q, k, v = (part.requires_grad_() for part in random_qkv(num_tokens, batch=1, heads=2))
    torch.autograd.gradcheck(lambda *qkv: inline_attention(*qkv, 0.7), (q, k, v))
    positive = [part.detach().exp().requires_grad_() for part in (q, k)]
    torch.autograd.gradcheck(linear_attention, (*positive, v))
    inputs = [part.requires_grad_() for part in random_fold(num_tokens, channels=4)]
    torch.autograd.gradcheck(fold, inputs)
    torch.autograd.gradgradcheck(fold, inputs)


def test_gradients_of_local_residual_are_those_of_finite_differences():
    inputs = random_maps((2, 3), channels=2)
    torch.autograd.gradcheck(lambda *parts: local_residual(*parts, (2, 3)), inputs)
