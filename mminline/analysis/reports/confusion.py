"""Report on queries that are confused: rates of layers, of images, and their intervals."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from .. import AttentionWeights, count_confusion
from ..confusion import MAX_PAIRS, QUERY_DIFFERENCE, WEIGHT_DIFFERENCE, bootstrap_interval
from ..plots import plot_confusion
from .inputs import ModelSource
from .measure import measure_layers
from .tables import group_rows, print_table, save_rows

PAIRS = {True: 'all', False: 'random', None: ''}  # by whether a count is exact


def report_confusion(
    models: Sequence[ModelSource],
    images: Sequence[Path],
    out: Path,
    query_difference: float = QUERY_DIFFERENCE,
    weight_difference: float = WEIGHT_DIFFERENCE,
    centred: bool = False,
    max_pairs: int = MAX_PAIRS,
    seed: int = 0,
) -> None:
    """Count how often two clearly different queries get nearly the same weights.

    Drawn are the distribution over images of the share of confused pairs (mean over layers), and
    each layer's share. Intervals of layers and means are bootstrapped over images, an image being
    a cluster; confusion.csv has Wilson's interval for each image and layer, of random pairs.

    Args:
        models: Models to compare.
        images: Image files.
        out: Folder for confusion.csv, .json and .png.
        query_difference: Queries are clearly different from here on.
        weight_difference: Weights are nearly the same up to here.
        centred: Whether weights are compared less the uniform one.
        max_pairs: A layer with at most so many pairs of tokens is counted completely.
        seed: Of random pairs.
    """
    generator = torch.Generator().manual_seed(seed)

    def measure(attention: AttentionWeights) -> dict:
        found = count_confusion(
            attention, query_difference, weight_difference, max_pairs, generator, centred
        )
        low, high = found.interval
        return dict(rate=found.rate, low=low, high=high, exact=found.exact, **found._asdict())

    rows = measure_layers(models, images, measure)
    layers, per_image, means = summarize_confusion(rows)
    criterion = (
        f'confused: query difference at least {query_difference:g}, '
        f'{"centred " * centred}weight difference at most {weight_difference:g}'
    )
    print(criterion)
    print_table(
        ['model', 'layer', 'confused', '95% interval', 'pairs'],
        [_table_row(row) for row in layers + means],
    )
    settings = dict(
        query_difference=query_difference,
        weight_difference=weight_difference,
        centred=centred,
        pairs=max_pairs,
        seed=seed,
    )
    stem = out / 'confusion'
    save_rows(stem, rows, settings=settings, layers=layers, means=means, images=per_image)
    plot_confusion(per_image, layers, criterion, out / 'confusion.png')


def _table_row(row: dict) -> list[str]:
    rate, interval = '-', 'no different queries'
    if not math.isnan(row['rate']):
        rate, interval = f'{row["rate"]:.3%}', f'{row["low"]:.3%} .. {row["high"]:.3%}'
    return [row['curve'], row.get('layer', 'mean'), rate, interval, PAIRS[row.get('exact')]]


def summarize_confusion(rows: list[dict]) -> tuple[list[dict], list[dict], list[dict]]:
    """Average over the images of each layer, over the layers of each image, and over both."""
    layers = [
        dict(curve=curve, layer=layer, exact=all(row['exact'] for row in some), **_mean_rate(some))
        for (curve, layer), some in group_rows(rows, 'curve', 'layer').items()
    ]
    images = [
        dict(curve=curve, image=image, rate=_mean_rate(some)['rate'])
        for (curve, image), some in group_rows(rows, 'curve', 'image').items()
    ]
    images = [row for row in images if not math.isnan(row['rate'])]
    if not images:
        raise ValueError('no layer has two clearly different queries: lower the query difference')
    means = [
        dict(curve=curve, images=len(some), **_mean_rate(some))
        for (curve,), some in group_rows(images, 'curve').items()
    ]
    return layers, images, means


def _mean_rate(rows: list[dict]) -> dict:
    rates = [row['rate'] for row in rows if not math.isnan(row['rate'])]
    low, high = bootstrap_interval(rates)
    return dict(rate=float(np.mean(rates)) if rates else math.nan, low=low, high=high)
