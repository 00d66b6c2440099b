"""Figures of attention, with colours that all eyes can tell apart, also in print."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

# Okabe and Ito's colours; markers tell the curves apart without any.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS = 'osD^vP*'
DPI = 110
# Rates are drawn on a logarithmic scale from here on, and down to zero on a linear one.
LEAST_RATE = 1e-4

Rows = Sequence[dict]


def curves(rows: Rows) -> Iterator[tuple[str, dict, list[dict]]]:
    """Yield name, style and rows of each curve."""
    names = list(dict.fromkeys(row['curve'] for row in rows))
    for number, name in enumerate(names):
        style = dict(
            color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)], ms=5
        )
        yield name, style, [row for row in rows if row['curve'] == name]


def layer_order(rows: Rows) -> list[str]:
    """List the names of all layers, by stage and block."""
    return sorted(
        {row['layer'] for row in rows}, key=lambda name: [int(part) for part in name.split('.')]
    )


def _percent(share: float, position: int | None = None) -> str:
    return f'{100 * share:.3g}%'


def _finish_layers(axes: Axes, layers: list[str]) -> None:
    axes.set_xticks(range(len(layers)), layers)
    axes.set_xlabel('layer (stage.block)')
    axes.grid(alpha=0.3)


def plot_confusion(images: Rows, layers: Rows, criterion: str, file: Path) -> None:
    """Draw the distribution of images over the rate of confusion, and the rate of each layer.

    Args:
        images: ``curve`` and ``rate`` of each image.
        layers: ``curve``, ``layer``, ``rate``, ``low`` and ``high`` of each layer.
        criterion: Definition of confusion, the title.
        file: Where to save.
    """
    figure = Figure(figsize=(11, 4), layout='constrained')
    left, right = figure.subplots(1, 2)
    _draw_distribution(left, images)
    _draw_layers(right, layers)
    figure.suptitle(criterion, fontsize=9)
    figure.legend(*left.get_legend_handles_labels(), fontsize=9, loc='outside right upper')
    figure.savefig(file, dpi=DPI)


def _draw_distribution(axes: Axes, images: Rows) -> None:
    for name, style, rows in curves(images):
        rates = np.sort([row['rate'] for row in rows])
        shares = np.arange(len(rates) + 1) / len(rates)
        axes.step([rates[0], *rates], shares, where='post', color=style['color'], lw=1.8)
        axes.plot(rates.mean(), 0.5, mec='white', label=name, **style | dict(ms=8))
    axes.set(xlabel='confused pairs of queries', ylabel='share of images at or below')
    axes.set_title('Images (marker: mean)', fontsize=10)
    axes.set_xscale('symlog', linthresh=LEAST_RATE)
    axes.set_xlim(left=-0.1 * LEAST_RATE)
    axes.xaxis.set_major_formatter(_percent)
    axes.yaxis.set_major_formatter(_percent)
    axes.grid(alpha=0.3)


def _draw_layers(axes: Axes, layers: Rows) -> None:
    order = layer_order(layers)
    for name, style, rows in curves(layers):
        rates, lows, highs = (
            np.array([row[key] for row in rows]) for key in ('rate', 'low', 'high')
        )
        places = [order.index(row['layer']) for row in rows]
        ends = np.clip([rates - lows, highs - rates], 0, None)
        axes.errorbar(places, rates, ends, label=name, capsize=3, lw=1.5, **style)
    axes.set_ylabel('confused pairs of queries')
    axes.set_title('Layers (mean over images, 95% interval)', fontsize=10)
    axes.set_yscale('symlog', linthresh=LEAST_RATE)
    axes.set_ylim(bottom=-0.1 * LEAST_RATE)
    axes.yaxis.set_major_formatter(_percent)
    _finish_layers(axes, order)


def plot_locality(layers: Rows, file: Path) -> None:
    """Draw the share of attention on the 3x3 neighbourhood, of each layer.

    Args:
        layers: ``curve``, ``layer``, ``attention``, ``with_residual``, ``uniform``.
        file: Where to save.
    """
    figure = Figure(figsize=(7.5, 4.2), layout='constrained')
    axes = figure.subplots()
    order = layer_order(layers)
    for name, style, rows in curves(layers):
        places = [order.index(row['layer']) for row in rows]
        with_residual = [row['with_residual'] for row in rows]
        alone = [row['attention'] for row in rows]
        if None in with_residual:
            axes.plot(places, alone, '-', label=name, **style)
        else:
            axes.plot(places, alone, '--', mfc='white', label=f'{name}, attention alone', **style)
            axes.plot(places, with_residual, '-', label=f'{name}, with local residual', **style)
    # As wide short bars they show where curves lie on them.
    levels = sorted({(order.index(row['layer']), round(row['uniform'], 5)) for row in layers})
    axes.plot(*np.transpose(levels), '_', color='black', ms=22, mew=1.2, label='equal weights')
    axes.set_yscale('log')
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(_percent)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel('share of absolute weight on 3x3 keys')
    _finish_layers(axes, order)
    figure.legend(fontsize=8, loc='outside right upper')
    figure.savefig(file, dpi=DPI)


def plot_masking(scores: Rows, metric: str, file: Path) -> None:
    """Draw the score of models with tokens hidden from the attention.

    Args:
        scores: ``curve``, ``kind`` and ``side`` of the mask, ``score``.
        metric: Name of the score.
        file: Where to save.
    """
    figure = Figure(figsize=(7, 4), layout='constrained')
    axes = figure.subplots()
    sides = sorted({row['side'] for row in scores})
    for name, style, rows in curves(scores):
        (start,) = [row['score'] for row in rows if row['kind'] == 'none']
        for kind, line, fill in (('local', '-', style['color']), ('random', '--', 'white')):
            points = {row['side']: row['score'] for row in rows if row['kind'] == kind}
            places = [0, *(sides.index(side) for side in points)]
            axes.plot(places, [start, *points.values()], line, mfc=fill,
                      label=f'{name}, {kind}', **style)  # fmt: skip
    axes.set_xticks(range(len(sides)), ['none', *(f'{side}x{side}' for side in sides[1:])])
    axes.set(xlabel='keys hidden from each query (random: as many)', ylabel=metric)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc='outside right upper')
    figure.savefig(file, dpi=DPI)
