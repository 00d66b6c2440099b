"""Confusion: two clearly different queries that get nearly the same attention weights.

For queries ``p`` and ``q`` with weights ``v`` and ``w`` over the same keys,

    query difference   |p - q|_2 / (|p|_2 + |q|_2)
    weight difference  |v - w|_1 / (|v|_1 + |w|_1)

Both are 0 for equal and at most 1. For weights that are not negative the second is the share of
the attention that lies elsewhere; it stays meaningful for those of InLine attention, which may be
negative. ``q`` and ``2q`` have a query difference of 1/3.

Attention that is nearly flat gives all queries nearly the same weights. To tell that from queries
that are mistaken for each other, weights can be centred: ``v`` and ``w`` are then what is left
after the uniform weight of each key is taken away.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..layers.attention.weights import CHUNK_WEIGHTS, AttentionWeights

QUERY_DIFFERENCE = 0.1
WEIGHT_DIFFERENCE = 0.01
MAX_PAIRS = 20_000


class Confusion(NamedTuple):
    """Pairs of queries in one layer on one image, summed over heads."""

    confused: int  # of those that are different, with nearly the same weights
    different: int  # clearly different queries
    looked_at: int  # pairs of tokens: all, or those that were drawn
    all_pairs: int  # pairs of tokens that see the same keys
    clusters: int  # pairs of tokens that are different in at least one head

    @property
    def exact(self) -> bool:
        return self.looked_at == self.all_pairs

    @property
    def rate(self) -> float:
        """Share of the different pairs that is confused; not a number if none is different."""
        return self.confused / self.different if self.different else float('nan')

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the rate over all pairs: Wilson's, or the rate itself if exact.

        Heads see the same pairs of tokens, so a pair counts once, however many heads it has.
        That is as if all heads agreed: the interval is wide enough whether they do or not.
        """
        if self.exact or not self.different:
            return self.rate, self.rate
        return wilson_interval(self.rate, self.clusters)


def wilson_interval(rate: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a rate among ``count`` independent draws."""
    centre = rate + z**2 / (2 * count)
    spread = z * (rate * (1 - rate) / count + (z / (2 * count)) ** 2) ** 0.5
    low, high = ((centre + sign * spread) / (1 + z**2 / count) for sign in (-1, 1))
    # Rounding must not push the rate out of its own interval at 0 and 1.
    return max(min(low, rate), 0.0), min(max(high, rate), 1.0)


def bootstrap_interval(rates: list[float], draws: int = 2000) -> tuple[float, float]:
    """95% interval of a mean over images, by drawing images anew: an image is a cluster."""
    rates = np.array([rate for rate in rates if not np.isnan(rate)])
    if not len(rates):
        return float('nan'), float('nan')
    chosen = np.random.default_rng(0).integers(len(rates), size=(draws, len(rates)))
    low, high = np.percentile(rates[chosen].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def count_confusion(
    attention: AttentionWeights,
    query_difference: float = QUERY_DIFFERENCE,
    weight_difference: float = WEIGHT_DIFFERENCE,
    max_pairs: int = MAX_PAIRS,
    generator: torch.Generator | None = None,
    centred: bool = False,
) -> Confusion:
    """Count confused pairs of queries, in every head.

    Args:
        attention: The attention.
        query_difference: Queries are clearly different from here on.
        weight_difference: Weights are nearly the same up to here.
        max_pairs: All pairs are looked at if there are no more; else as many random ones, drawn
            independently.
        generator: Source of the random pairs.
        centred: Whether weights are compared less the uniform weight.
    """
    pairs_P3, total = list_pairs(attention, max_pairs, generator)
    confused = different = clusters = 0
    for group in pairs_P3[:, 0].unique().tolist():
        rows_P2 = pairs_P3[pairs_P3[:, 0] == group, 1:]
        query_weights = attention.q_BNLD.shape[1] * attention.k_BNMD.shape[2]
        for some_P2 in rows_P2.split(max(CHUNK_WEIGHTS // (2 * query_weights), 1)):
            query_NP, weight_NP = pair_differences(attention, group, some_P2, centred)
            different_NP = query_NP >= query_difference
            different += int(different_NP.sum())
            confused += int((different_NP & (weight_NP <= weight_difference)).sum())
            clusters += int(different_NP.any(dim=0).sum())
    return Confusion(confused, different, len(pairs_P3), total, clusters)


def pair_differences(
    attention: AttentionWeights, group: int, rows_P2: Tensor, centred: bool = False
) -> tuple[Tensor, Tensor]:
    """Query and weight differences of pairs of rows of a group, each ``(N, P)``."""
    groups = slice(group, group + 1)
    rows, place_P2 = rows_P2.unique(return_inverse=True)
    q_NLD = attention.q_BNLD[group][:, rows]
    w_NLM = attention.weights(groups, rows)[0]
    if centred:
        visible_LM = attention.visible(groups, rows)[0].to(w_NLM.dtype)
        w_NLM = w_NLM - visible_LM / visible_LM.sum(dim=-1, keepdim=True)
    return (
        _relative_difference(q_NLD, place_P2, order=2),
        _relative_difference(w_NLM, place_P2, order=1),
    )


def _relative_difference(x_NLK: Tensor, place_P2: Tensor, order: int) -> Tensor:
    first_NPK, second_NPK = (x_NLK[:, place_P] for place_P in place_P2.unbind(-1))
    size_NL = torch.linalg.vector_norm(x_NLK, order, dim=-1)
    sizes_NP = size_NL[:, place_P2].sum(dim=-1)
    difference_NP = torch.linalg.vector_norm(first_NPK - second_NPK, order, dim=-1)
    # Two vectors of nothing but zeros are equal.
    return difference_NP / sizes_NP.clamp(min=torch.finfo(x_NLK.dtype).tiny)


def list_pairs(
    attention: AttentionWeights, max_pairs: int, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Pairs of tokens that see the same keys: all of them, or random ones if there are more.

    Returns:
        Group and two rows of each pair, ``(P, 3)``, and how many pairs there are.
    """
    place_T2 = (attention.cell_BL >= 0).nonzero()
    if attention.q_region_BL is None:
        label_T = place_T2[:, 0]
    else:
        region_T = attention.q_region_BL[place_T2[:, 0], place_T2[:, 1]]
        label_T = place_T2[:, 0] * (int(region_T.max()) + 1) + region_T
    order_T = label_T.argsort(stable=True)
    size_S = label_T[order_T].unique_consecutive(return_counts=True)[1]
    start_S = size_S.cumsum(0) - size_S
    total = int((size_S * (size_S - 1) // 2).sum())
    if total <= max_pairs:
        pairs = [
            start + torch.triu_indices(size, size, 1, device=order_T.device)
            for start, size in zip(start_S.tolist(), size_S.tolist(), strict=True)
        ]
        pairs_P2 = torch.cat(pairs, dim=1).t()
    else:
        pairs_P2 = _draw_pairs(start_S.cpu(), size_S.cpu(), max_pairs, generator).to(order_T.device)
    first_P2, second_P2 = (place_T2[order_T[index_P]] for index_P in pairs_P2.unbind(-1))
    return torch.cat([first_P2, second_P2[:, 1:]], dim=1), total


def _draw_pairs(
    start_S: Tensor, size_S: Tensor, count: int, generator: torch.Generator | None
) -> Tensor:
    """Draw pairs from sets of consecutive numbers, each pair with the same probability."""
    set_P = torch.multinomial(
        (size_S * (size_S - 1)).double(), count, replacement=True, generator=generator
    )
    size_P = size_S[set_P]
    first_P, second_P = (
        (torch.rand(count, dtype=torch.float64, generator=generator) * choices_P).long()
        for choices_P in (size_P, size_P - 1)
    )
    second_P += second_P >= first_P
    return start_S[set_P, None] + torch.stack([first_P, second_P], dim=1)
