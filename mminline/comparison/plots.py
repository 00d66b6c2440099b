"""Pictures of a comparison: bars of the scores, and curves of score and loss."""

import statistics
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = (
    '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#7F7F7F', '#000000',
)  # fmt: skip
STYLES = ('-', '--', ':')


def plot_comparison(rows: list[dict], title: str, path: Path) -> None:
    """Draw a bar for the mean of each kind, and a dot for each run."""
    metric = rows[0]['metric']
    figure = Figure(figsize=(max(4.5, 1.5 + 0.9 * len(rows)), 4.0), layout='constrained')
    axes = figure.subplots()
    for place, row in enumerate(rows):
        count = len(row['scores'])
        offsets = [place + 0.1 * (number - (count - 1) / 2) for number in range(count)]
        axes.bar(place, row[metric], width=0.7, color=COLORS[5], alpha=0.6)
        label = 'one seed' if place == 0 else None
        axes.plot(offsets, row['scores'], 'o', color=COLORS[0], markersize=4, label=label)
    names = [row['kind'].replace('-', '-\n', 1) for row in rows]
    axes.set_xticks(range(len(rows)), names, fontsize='small')
    axes.set_ylabel(f'{metric} on validation images')
    # The name of the config is a line of its own: bars of a few kinds are narrow.
    axes.set_title(title.replace(', ', '\n', 1), fontsize='medium')
    axes.grid(axis='y', alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(loc='lower right')
    figure.savefig(path, dpi=120)


def plot_curves(rows: list[dict], title: str, path: Path) -> None:
    """Draw score and loss against iterations, means over seeds."""
    figure = Figure(figsize=(11, 4.2), layout='constrained')
    score_axes, loss_axes = figure.subplots(1, 2)
    for number, row in enumerate(rows):
        style = dict(
            color=COLORS[number % len(COLORS)],
            linestyle=STYLES[number // len(COLORS) % len(STYLES)],
            label=row['kind'],
        )
        _draw_mean(score_axes, row['curves'], marker='o', markersize=3, **style)
        _draw_mean(loss_axes, row['losses'], linewidth=1, **style)
    score_axes.set_ylabel(f'{rows[0]["metric"]} on validation images')
    loss_axes.set_ylabel('training loss')
    for axes in (score_axes, loss_axes):
        axes.set_xlabel('iteration')
        axes.grid(alpha=0.3)
    figure.legend(*score_axes.get_legend_handles_labels(), loc='outside right center')
    figure.suptitle(title, fontsize='medium')
    figure.savefig(path, dpi=120)


def _draw_mean(axes: Axes, curves: list[list], **style: object) -> None:
    """Draw the mean of curves that have the same iterations."""
    iterations = [place for place, _ in curves[0]]
    means = [statistics.mean(value for _, value in points) for points in zip(*curves, strict=True)]
    axes.plot(iterations, means, **style)
