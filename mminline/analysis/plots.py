"""Figures of what attention does, fit for print and for eyes that confuse red and green."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

# Okabe and Ito's colours; markers tell the curves apart without any.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS = 'osD^vP*'
DPI = 110

Rows = Sequence[dict]


def curves(rows: Rows) -> Iterator[tuple[str, dict, list[dict]]]:
    """Rows of each curve, with its name and its look."""
    names = list(dict.fromkeys(row['curve'] for row in rows))
    for number, name in enumerate(names):
        look = dict(
            color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)], ms=5
        )
        yield name, look, [row for row in rows if row['curve'] == name]


def layer_order(rows: Rows) -> list[str]:
    """Names of all layers, by stage and block."""
    return sorted(
        {row['layer'] for row in rows}, key=lambda name: [int(part) for part in name.split('.')]
    )


def _finish_layers(axes: Axes, layers: list[str]) -> None:
    axes.set_xticks(range(len(layers)), layers)
    axes.set_xlabel('layer (stage.block)')
    axes.grid(alpha=0.3)


def plot_confusion(images: Rows, layers: Rows, criterion: str, file: Path) -> None:
    """How images are distributed over the rate of confusion, and the rate of each layer.

    Args:
        images: ``curve`` and ``rate`` of each image.
        layers: ``curve``, ``layer``, ``rate``, ``low`` and ``high`` of each layer.
        criterion: What is called confusion.
        file: Where to save.
    """
    figure = Figure(figsize=(10, 4), layout='constrained')
    left, right = figure.subplots(1, 2)
    for name, look, rows in curves(images):
        rates = np.sort([row['rate'] for row in rows])
        share = np.arange(1, len(rates) + 1) / len(rates)
        # From the first image to the last, and on to the edge of the panel.
        left.step(
            np.concatenate([[rates[0]], rates]),
            np.concatenate([[0], share]),
            where='post',
            label=name,
            color=look['color'],
            lw=1.8,
        )
        left.plot(rates.mean(), 0.5, ls='', mec='white', **look | dict(ms=8))
    left.set(xlabel='confused pairs of queries', ylabel='share of images at or below')
    left.set_title(f'Images (marker: mean of {len(rows)})', fontsize=10)
    left.set_xscale('symlog', linthresh=1e-3)
    left.set_xlim(left=0)
    left.xaxis.set_major_formatter(PercentFormatter(1))
    left.xaxis.set_minor_formatter(NullFormatter())
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    left.grid(alpha=0.3)
    order = layer_order(layers)
    for name, look, rows in curves(layers):
        rates = np.array([row['rate'] for row in rows])
        ends = [[max(rate - row['low'], 0), max(row['high'] - rate, 0)]
                for rate, row in zip(rates, rows, strict=True)]  # fmt: skip
        places = [order.index(row['layer']) for row in rows]
        right.errorbar(places, rates, np.transpose(ends), label=name, capsize=3, lw=1.5, **look)
    right.set_ylabel('confused pairs of queries')
    right.set_title('Layers (mean over images, 95% interval)', fontsize=10)
    right.set_yscale('symlog', linthresh=1e-3)
    right.set_ylim(bottom=0)
    right.yaxis.set_major_formatter(PercentFormatter(1))
    right.yaxis.set_minor_formatter(NullFormatter())
    _finish_layers(right, order)
    right.legend(fontsize=9)
    figure.suptitle(criterion, fontsize=9)
    figure.savefig(file, dpi=DPI)


def plot_locality(layers: Rows, file: Path) -> None:
    """Share of attention on the 3x3 neighbourhood, of each layer.

    Args:
        layers: ``curve``, ``layer``, ``attention``, ``with_residual``, ``uniform``, ``keys``.
        file: Where to save.
    """
    figure = Figure(figsize=(7.5, 4.2), layout='constrained')
    axes = figure.subplots()
    order = layer_order(layers)
    drawn = set()
    for name, look, rows in curves(layers):
        places = [order.index(row['layer']) for row in rows]
        with_residual = [row['with_residual'] for row in rows]
        has_residual = any(share is not None for share in with_residual)
        alone = f'{name}, attention alone' if has_residual else name
        axes.plot(places, [row['attention'] for row in rows], '--' if has_residual else '-',
                  label=alone, mfc='white' if has_residual else None, **look)  # fmt: skip
        if has_residual:
            axes.plot(places, np.array(with_residual, float), '-',
                      label=f'{name}, with local residual', **look)  # fmt: skip
        level = tuple(round(row['uniform'], 6) for row in rows)
        if (tuple(places), level) not in drawn:
            # The first curve's level serves all others that have it too.
            label = f'equal weights ({name})' if drawn else 'equal weights (about 9/N)'
            colour = look['color'] if drawn else '0.4'
            axes.plot(places, level, ':', lw=1.5, color=colour, label=label)
            drawn.add((tuple(places), level))
    axes.set_yscale('log')
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel('share of absolute weight on 3x3 keys')
    _finish_layers(axes, order)
    figure.legend(fontsize=8, loc='outside right upper')
    figure.savefig(file, dpi=DPI)


def plot_masking(scores: Rows, metric: str, file: Path) -> None:
    """Score of a model with tokens hidden from the attention.

    Args:
        scores: ``curve``, ``kind`` and ``side`` of the mask, ``score``.
        metric: Name of the score.
        file: Where to save.
    """
    figure = Figure(figsize=(7, 4), layout='constrained')
    axes = figure.subplots()
    sides = sorted({row['side'] for row in scores})
    for name, look, rows in curves(scores):
        (start,) = [row['score'] for row in rows if row['kind'] == 'none']
        for kind, style, fill in (('local', '-', look['color']), ('random', '--', 'white')):
            points = {row['side']: row['score'] for row in rows if row['kind'] == kind}
            places = [0, *(sides.index(side) for side in points)]
            axes.plot(places, [start, *points.values()], style, mfc=fill,
                      label=f'{name}, {kind}', **look)  # fmt: skip
    axes.set_xticks(range(len(sides)), ['none', *(f'{side}x{side}' for side in sides[1:])])
    axes.set(xlabel='keys hidden from each query (random: as many)', ylabel=metric)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc='outside right upper')
    figure.savefig(file, dpi=DPI)
