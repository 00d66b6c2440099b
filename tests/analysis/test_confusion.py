"""Confusion of queries: parallel ones, ends of the scale, random pairs against all pairs."""

import math

import pytest
import torch

from helpers.hooked_layers import LAYERS, attention_of, build, look, tokens
from helpers.tiny import image
from mminline.analysis.confusion import (
    Confusion,
    bootstrap_interval,
    count_confusion,
    list_pairs,
    pair_differences,
    wilson_interval,
)
from mminline.layers.attention.weights import CHUNK_WEIGHTS, AttentionWeights
from mminline.layers.functional import FEATURE_MAPS

pytestmark = pytest.mark.slow


def parallel_queries(kind: str) -> Confusion:
    """A query, its double and its triple: directions are the same, lengths are not."""
    query = torch.tensor([0.3, 1.2, 0.7]).double()
    q = torch.stack([query, 2 * query, 3 * query])
    k = image(3, 3, dtype=torch.float64).abs()
    return count_confusion(attention_of(kind, q, k, scale=3**-0.5))


def test_parallel_queries_are_confused_by_plain_linear_attention():
    found = parallel_queries('linear')
    assert (found.confused, found.different, found.all_pairs) == (3, 3, 3)
    assert found.rate == 1


@pytest.mark.parametrize('kind', ['inline', 'softmax'])
def test_parallel_queries_are_told_apart_by_the_others(kind):
    found = parallel_queries(kind)
    assert (found.confused, found.different) == (0, 3)


def test_queries_that_differ_below_zero_only_are_confused_through_relu():
    q, k = [[1.0, -1.0], [1.0, -5.0]], [[1.0, 2.0], [3.0, -1.0]]
    relu = FEATURE_MAPS['relu']
    found = count_confusion(
        attention_of('inline', q, relu(torch.tensor(k)), scale=1.0, feature_map=relu)
    )
    assert (found.confused, found.different) == (1, 1)


def test_equal_queries_are_not_counted():
    found = count_confusion(attention_of('softmax', [[1.0, 0.0]] * 3, [[1.0, 0.0]] * 3))
    assert (found.different, found.all_pairs) == (0, 3)
    assert math.isnan(found.rate)


def test_differences_are_what_they_are_defined_as():
    attention = attention_of(
        'linear', [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]
    )
    query, weight = pair_differences(attention, 0, torch.tensor([[0, 1], [0, 2]]))

    # |(1, -1)| / 2 and |(1, 0)| / 3; all attention elsewhere, and none.
    assert query[0].tolist() == pytest.approx([2**0.5 / 2, 1 / 3])
    assert weight[0].tolist() == pytest.approx([1, 0], abs=1e-5)


@pytest.mark.parametrize(('kind', 'confused'), [('linear', 3), ('inline', 0), ('softmax', 0)])
def test_flat_attention_is_no_confusion_once_weights_are_centred(kind, confused):
    # Keys so much alike that all weights are within a thousandth of the uniform one.
    query = torch.tensor([0.3, 1.2, 0.7]).double()
    q = torch.stack([query, 2 * query, 3 * query])
    attention = attention_of(kind, q, 1 + 1e-3 * image(3, 3, dtype=torch.float64), scale=0.5)

    assert count_confusion(attention).confused == 3
    assert count_confusion(attention, centred=True).confused == confused


def test_centred_weights_of_inline_attention_differ_as_much_as_parallel_queries():
    q, k = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), image(2, 2, dtype=torch.float64)
    attention = attention_of('inline', q, k, scale=0.7)
    query, weight = pair_differences(attention, 0, torch.tensor([[0, 1]]), centred=True)

    assert query.item() == pytest.approx(0.5)
    assert weight.item() == pytest.approx(0.5)


def test_thresholds_are_adjustable():
    attention = attention_of('inline', [[1.0], [1.5], [3.0]], [[0.3], [0.1], [0.2]], scale=1.0)
    counts = [
        count_confusion(attention, query_difference=query, weight_difference=weight)[:2]
        for query, weight in [(0.1, 0.01), (0.25, 0.5), (0.1, 0.5), (0.1, 0.02)]
    ]
    # Query differences are 0.2, 1/3 and 0.5; weight differences 1/60, 1/30 and 1/15.
    assert counts == [(0, 3), (2, 2), (3, 3), (1, 3)]


@pytest.mark.parametrize('name', LAYERS)
def test_pairs_are_those_of_tokens_that_see_the_same_keys(name):
    _, attention = look(build(name), tokens(batch=1))
    pairs, total = list_pairs(attention, max_pairs=10**6)

    cells = attention.cell_BL
    expected = {
        (group, first, second)
        for group in range(len(cells))
        for first in range(cells.shape[1])
        for second in range(first + 1, cells.shape[1])
        if min(cells[group, first], cells[group, second]) >= 0
        and (attention.visible()[group, first] == attention.visible()[group, second]).all()
    }
    assert {(group, *sorted(rows)) for group, *rows in pairs.tolist()} == expected
    assert total == len(pairs) == len(expected)


@pytest.mark.parametrize('name', ['inline', 'softmax shifted windows'])
def test_random_pairs_are_drawn_evenly(name):
    _, attention = look(build(name), tokens(batch=1, grid=(8, 8)), grid=(8, 8))
    everything, total = list_pairs(attention, max_pairs=10**6)
    drawn, again = list_pairs(attention, total - 1, torch.Generator().manual_seed(0))
    many = torch.cat(
        [drawn]
        + [list_pairs(attention, total - 1, torch.Generator().manual_seed(i))[0] for i in range(99)]
    )
    many[:, 1:] = many[:, 1:].sort(dim=1).values
    found, times = many.unique(dim=0, return_counts=True)
    everything[:, 1:] = everything[:, 1:].sort(dim=1).values

    assert again == total
    assert len(found) == total
    assert torch.equal(found, everything.unique(dim=0))
    # Each is drawn about 100 times: Poisson, with a standard deviation of 10.
    assert 50 < times.min() < times.max() < 160
    assert times.double().std() == pytest.approx(10, rel=0.15)


def test_random_pairs_agree_with_all_pairs_within_the_interval():
    _, attention = look(build('linear relu'), tokens(batch=1))
    options = dict(query_difference=0.1, weight_difference=0.15)
    exact = count_confusion(attention, **options)
    assert exact.exact
    assert exact.interval == (exact.rate, exact.rate)
    assert 0.05 < exact.rate < 0.95

    hits = 0
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        drawn = count_confusion(attention, **options, max_pairs=300, generator=generator)
        assert not drawn.exact
        low, high = drawn.interval
        hits += low <= exact.rate <= high
    assert hits >= 90  # 95 are promised at least, as heads count as one


def test_a_large_map_never_has_all_of_its_weights(monkeypatch):
    sizes = []
    weights = AttentionWeights.weights

    def watched(*args):
        found = weights(*args)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(AttentionWeights, 'weights', watched)
    q, k = image(2, 300 * 300, 4, dtype=torch.float64)
    found = count_confusion(attention_of('inline', q, k, grid=(300, 300)), max_pairs=300)

    assert found.all_pairs == 90_000 * 89_999 // 2
    assert sum(sizes) == pytest.approx(600 * 90_000, rel=0.01)
    assert max(sizes) <= CHUNK_WEIGHTS


def test_wilson_interval_of_known_cases():
    assert wilson_interval(0.0, 100) == pytest.approx((0, 0.037), abs=1e-3)
    assert wilson_interval(0.5, 100) == pytest.approx((0.404, 0.596), abs=1e-3)
    assert wilson_interval(1.0, 100)[1] == 1


def test_images_are_what_the_interval_of_a_mean_is_drawn_from():
    rates = [0.0] * 50 + [1.0] * 50
    low, high = bootstrap_interval(rates)
    assert (low, high) == pytest.approx((0.4, 0.6), abs=0.03)
    assert bootstrap_interval([0.3, float('nan')]) == (0.3, 0.3)
