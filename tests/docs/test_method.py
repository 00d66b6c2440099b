"""Claims of docs/method.md that no other test checks: injectivity, costs, centring."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from helpers.attention_layers import inline_layer
from helpers.tiny import image
from mminline.execution.covariance import values_and_covariance
from mminline.layers import InLineAttention, linear_attention, reference
from mminline.layers.functional import FEATURE_MAPS


def random(*shape):
    return image(*shape, dtype=torch.float64)


def inline_weights(q_LD, k_MD):
    return reference.inline_weights(q_LD[None, None], k_MD[None, None], scale=0.5)[0, 0]


@pytest.mark.parametrize('num_keys', [5, 30])
def test_weights_are_injective_exactly_when_centred_keys_have_full_rank(num_keys):
    queries, keys, normal = random(7, 4), random(num_keys, 4), random(4)
    # Weights are affine in the query: with full rank it can be computed back from them.
    centred = keys - keys.mean(dim=0)
    weights = inline_weights(queries, keys)
    scaled = (weights - 1 / num_keys) * num_keys / 0.5
    assert_close(torch.linalg.lstsq(centred, scaled.T).solution.T, queries)

    # Keys in a plane beside the origin have full rank themselves, but not around their mean.
    flat = keys - (keys @ normal - 3)[:, None] * normal / normal.square().sum()
    assert torch.linalg.matrix_rank(flat) == 4
    assert torch.linalg.matrix_rank(flat - flat.mean(dim=0)) == 3
    assert_close(inline_weights(queries + normal, flat), inline_weights(queries, flat))
    # The same queries are one to softmax attention too.
    once, other = (
        reference.softmax_weights(part, flat, scale=0.5) for part in (queries, queries + normal)
    )
    assert_close(once, other)


def test_as_many_keys_as_channels_are_too_few_for_injectivity():
    queries, keys = random(7, 4), random(4, 4)
    unseen = torch.linalg.svd(keys - keys.mean(dim=0)).Vh[-1]
    assert_close(inline_weights(queries + unseen, keys), inline_weights(queries, keys))


@pytest.mark.parametrize(
    ('feature_map', 'alike'), [('relu', lambda q: 2 * q), ('exp', lambda q: q + 3)]
)
def test_plain_linear_attention_confuses_what_its_feature_map_makes_parallel(feature_map, alike):
    phi = FEATURE_MAPS[feature_map]
    q, k, v = (random(1, 1, tokens, 4) + 0.5 for tokens in (6, 9, 9))
    outputs = [linear_attention(phi(query), phi(k), v) for query in (q, alike(q))]
    assert_close(*outputs, rtol=0, atol=1e-5)

    weights = [inline_weights(phi(query)[0, 0], phi(k)[0, 0]) for query in (q, alike(q))]
    assert (weights[0] - weights[1]).abs().amax(dim=-1).min() > 1e-3


def counted_macs(form, *inputs):
    with FlopCounterMode(display=False) as counter:
        form(*inputs)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize('hw_shape', [(5, 6), (9, 11)])
def test_each_form_costs_what_the_page_says(hw_shape):
    tokens, channels, heads = hw_shape[0] * hw_shape[1], 24, 3
    head = channels // heads
    layer, x = InLineAttention(channels, heads), image(1, tokens, channels)
    linears, local = 4 * tokens * channels**2, 9 * tokens * channels
    kernel = 10 * channels * head

    # The oracle adds nine neighbours without a product that is counted.
    weights = counted_macs(lambda: inline_layer(layer, x, hw_shape)) + local
    assert weights == linears + 2 * tokens**2 * channels + local + kernel
    layer.folded = False
    covariance = counted_macs(layer, x, hw_shape)
    assert covariance == linears + 2 * tokens * channels * head + local + kernel
    layer.folded = True
    folding = channels**3 + 2 * channels**2 * head + channels**2 + channels * head
    folded = counted_macs(layer, x, hw_shape)
    assert folded == linears + local + kernel + folding


def test_centring_saves_digits_that_a_difference_of_products_loses():
    tokens = (random(1, 20_000, 16) + 30 * random(1, 1, 16)).float()
    weight, bias = image(16, 16), image(16)

    def difference(x):
        mean = x.mean(dim=1, keepdim=True)
        return x.mT @ x / x.shape[1] - mean.mT @ mean

    mean = tokens.mean(dim=1, keepdim=True)
    centred = values_and_covariance(tokens, mean, weight, bias, one_pass=False)[1]
    exact = difference(tokens.double())
    errors = [(form - exact).abs().max() for form in (centred, difference(tokens))]
    assert errors[0] < errors[1] / 3
