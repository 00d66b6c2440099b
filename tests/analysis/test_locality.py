"""Locality and maps of single queries, on attention whose answer is known."""

import pytest
import torch
from torch.testing import assert_close

from helpers.hooked_layers import GRID, HEADS, LAYERS, attention_of, build, look, tokens
from mminline.analysis.locality import measure_locality
from mminline.analysis.maps import weight_maps

# Neighbours of all cells of a map together: 3 for each cell and side, less one at both ends.
NEIGHBOURS = (3 * GRID[0] - 2) * (3 * GRID[1] - 2)
TOKENS = GRID[0] * GRID[1]
REDUCED = ('mmdet PVT, keys reduced', 'mmseg MiT')


def uniform(**options):
    zeros = torch.zeros(TOKENS, 4)
    return attention_of('softmax', zeros, zeros, grid=GRID, **options)


def purely_local(side: int = 3):
    """Softmax attention whose bias leaves nothing but the square around each query."""
    attention = uniform()
    index, seen = attention.neighbours(side=side)
    bias = torch.full((TOKENS, TOKENS), -torch.inf, dtype=torch.float64)
    for row in range(TOKENS):
        bias[row, index[row, seen[0, row]]] = 0
    return uniform(bias_NLM=bias[None])


def test_uniform_attention_has_the_uniform_share():
    _, seen = uniform().neighbours(rows=torch.tensor([GRID[1] + 1]))
    assert seen.sum() == 9  # of N inside a map; fewer at the border

    found = measure_locality(uniform())
    assert found.attention == pytest.approx(found.uniform)
    assert found.uniform == pytest.approx(NEIGHBOURS / TOKENS**2)
    assert found.with_residual is None


def test_purely_local_attention_has_a_share_of_one():
    found = measure_locality(purely_local())
    assert found.attention == pytest.approx(1)
    assert found.uniform == pytest.approx(NEIGHBOURS / TOKENS**2)


def test_attention_on_a_wider_square_has_a_smaller_share():
    # Inside, 9 of 25.
    assert 9 / 25 < measure_locality(purely_local(side=5)).attention < 0.5


def test_negative_weights_count_by_their_size():
    # Keys in a row; the middle query has the weights (1 - 3, 1, 1 + 3) / 3 and (1, 1, 1) / 3 ...
    attention = attention_of('inline', [[0.0], [3.0], [0.0]], [[-1.0], [0.0], [1.0]], scale=1.0)
    weights = attention.weights()[0, 0]
    assert_close(weights[1], torch.tensor([-2.0, 1.0, 4.0]).double() / 3)

    # ... the outer two have one neighbour of two strangers.
    assert measure_locality(attention).attention == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)


def test_the_residual_is_counted_in_each_channel():
    kernel = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    kernel[0, 0, 0, 1] = 5.0  # the token above, in the first of two channels
    attention = uniform()
    attention.q_BNLD, attention.k_BNMD = attention.q_BNLD[..., :2], attention.k_BNMD[..., :2]
    attention.kernel_BC33 = kernel

    found = measure_locality(attention)
    near = attention.neighbours()[1][0].sum(-1) / TOKENS
    # Weights of 1 / N in all become 6 with the kernel, but in the first row, which has none above.
    first = torch.where(torch.arange(TOKENS) < GRID[1], near, (near + 5) / 6)
    assert found.attention == pytest.approx(float(near.mean()))
    assert found.with_residual == pytest.approx(float((first + near).mean() / 2))


@pytest.mark.parametrize('name', LAYERS)
def test_shares_equal_those_of_all_weights_written_out(name):
    _, attention = look(build(name), tokens(batch=1))
    index, seen = attention.neighbours()
    weights = attention.weights()
    shares = []
    for group, head, row in torch.cartesian_prod(*map(torch.arange, weights.shape[:3])).tolist():
        size = weights[group, head, row].abs()
        # Through ReLU a query may have no weights at all.
        if attention.cell_BL[group, row] >= 0 and size.sum() > 0:
            near = size[index[row, seen[group, row]]]
            shares.append(float(near.sum() / size.sum()))

    assert measure_locality(attention).attention == pytest.approx(sum(shares) / len(shares))


def test_random_queries_agree_with_all():
    _, attention = look(build('inline'), tokens(batch=1))
    everything = measure_locality(attention)
    some = [
        measure_locality(attention, max_queries=40, generator=torch.Generator().manual_seed(seed))
        for seed in range(30)
    ]

    assert everything.queries == TOKENS
    assert {found.queries for found in some} == {40}
    for name in ('attention', 'with_residual', 'uniform'):
        values = torch.tensor([getattr(found, name) for found in some]).double()
        error = float(values.std()) / len(some) ** 0.5
        assert values.mean() == pytest.approx(getattr(everything, name), abs=4 * error)


@pytest.mark.parametrize('name', [name for name in LAYERS if name not in REDUCED])
def test_maps_place_weights_so_that_they_give_the_output(name):
    _, attention = look(build(name), tokens(batch=1))
    attention.kernel_BC33 = None if attention.kernel_BC33 is None else attention.kernel_BC33 * 0
    mixed = attention.mix()
    for cell in [(0, 0), (4, 6), (8, 10)]:
        maps = weight_maps(attention, cell)
        at = attention.cell_BL == cell[0] * GRID[1] + cell[1]
        # Values of the map, put back from their groups; those of padding are left out.
        heads, channels = attention.v_BNMD.shape[1], attention.v_BNMD.shape[3]
        values = torch.zeros(heads, TOKENS, channels, dtype=torch.float64)
        real = attention.cell_BL >= 0
        values[:, attention.cell_BL[real]] = attention.v_BNMD.transpose(0, 1)[:, real]
        found = (maps.attention.flatten(1).unsqueeze(1) @ values).flatten()
        padding = attention.weights()[at.any(1)][0, :, at.nonzero()[0, 1]]
        padding = padding * ~real[at.any(1)]
        extra = (padding[:, None] @ attention.v_BNMD[at.any(1)][0]).flatten()
        assert_close(found + extra, mixed[at][0])


def test_the_residual_of_a_map_is_the_mean_kernel_around_the_query():
    _, attention = look(build('inline'), tokens(batch=1))
    maps = weight_maps(attention, (4, 6))
    expected = attention.kernel_BC33[0].unflatten(0, (HEADS, -1)).mean(1)

    assert_close(maps.residual[:, 3:6, 5:8], expected)
    assert_close(maps.residual.sum(), expected.sum())
    assert_close(maps.total, maps.attention + maps.residual)


def test_maps_of_reduced_keys_have_the_size_of_the_keys():
    _, attention = look(build('mmdet PVT, keys reduced'), tokens(batch=1))
    maps = weight_maps(attention, (8, 10))

    assert maps.attention.shape == (HEADS, 4, 5)
    assert maps.keys == 20
    assert_close(maps.attention.sum(dim=(1, 2)), torch.ones(HEADS).double())
