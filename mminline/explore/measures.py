"""Locality and confusion of a layer, in a fraction of a second.

Both look at weights of many queries, and on a large map a single query has tens of thousands. So
as many random queries and pairs are taken as have a limited number of weights together.
"""

import math
from typing import NamedTuple

import torch

from ..analysis import (
    AttentionWeights,
    Confusion,
    Locality,
    count_confusion,
    measure_locality,
)

MAX_WEIGHTS = 1 << 22  # for each measure
FEWEST = 8  # queries, or pairs of them
MOST_PAIRS = 256  # pairs in different windows are looked at one by one


class Measures(NamedTuple):
    """Measures of one layer on one image; docs/analysis.md has the definitions."""

    locality: Locality
    confusion: Confusion
    centred: Confusion  # with the uniform weight taken away

    def describe(self) -> list[str]:
        """Write both as short lines of text."""
        locality, confusion = self.locality, self.confusion
        near = f'locality {_percent(locality.attention)}'
        if locality.with_residual is not None:
            near += f', {_percent(locality.with_residual)} with the local residual'
        near += f' (equal weights: {_percent(locality.uniform)}; {locality.queries} queries)'
        pairs = f'{"all" if confusion.exact else "random"} pairs: {confusion.looked_at}'
        rates = (
            f'{name} {_percent(found.rate)}{_interval(found)}'
            for name, found in (('confusion', confusion), ('centred', self.centred))
        )
        return [near, f'{", ".join(rates)} ({pairs})']

    def numbers(self) -> dict:
        """Return what is saved of them."""
        return dict(
            locality=self.locality._asdict(),
            confusion=_numbers(self.confusion),
            centred_confusion=_numbers(self.centred),
        )


def measure_layer(attention: AttentionWeights) -> Measures:
    """Measure a layer on the image that it has seen; the choice of queries is always the same."""
    groups, heads = attention.q_BNLD.shape[:2]
    row_weights = heads * attention.k_BNMD.shape[2]
    queries = max(MAX_WEIGHTS // (groups * row_weights), FEWEST)
    pairs = min(max(MAX_WEIGHTS // (2 * row_weights), FEWEST), MOST_PAIRS)
    confusion, centred = (
        count_confusion(attention, max_pairs=pairs, generator=_seeded(), centred=centred)
        for centred in (False, True)
    )
    return Measures(measure_locality(attention, queries, _seeded()), confusion, centred)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _percent(share: float) -> str:
    return 'undefined' if math.isnan(share) else f'{100 * share:.3g} %'


def _interval(confusion: Confusion) -> str:
    if confusion.exact or not confusion.different:
        return ''
    low, high = confusion.interval
    return f' [{100 * low:.3g}, {100 * high:.3g}]'


def _numbers(confusion: Confusion) -> dict:
    """Rate and counts; None for a rate that is undefined, which JSON has no number for."""
    rate = None if math.isnan(confusion.rate) else confusion.rate
    return dict(confusion._asdict(), rate=rate)
