"""The paper's first figure: four parallel queries, and the weights that each attention gives them.

    python -m mminline.analysis.parallel_queries FILE.png

The feature map is ReLU, with two channels. The paper (arXiv:2412.06590, figure 1) prints weights of
two digits beside a plot of keys and queries without numbers. The coordinates here are those read
off the plot (``READ_OFF``), moved as little as possible (sum of squares) for each of the 36 printed
weights to come out within 0.0045; no coordinate moved by more than 0.024. Only the longest query
can be read off, the lengths of the others are free in that fit.
"""

import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..layers.reference import inline_weights, linear_weights, softmax_weights
from .plots import COLOURS, DPI

READ_OFF = dict(keys=((0.62, 1.85), (1.0, 1.03), (1.95, 0.63), (1.78, 0.3)), query=(1.12, 2.05))
KEYS = ((0.607, 1.827), (0.993, 1.017), (1.951, 0.632), (1.791, 0.32))
LONGEST_QUERY = (1.126, 2.026)
LENGTHS = (0.358, 0.613, 0.85, 1.0)  # of the queries, in lengths of the longest

PRINTED = {
    'linear': ((0.32, 0.23, 0.25, 0.19),) * 4,
    'InLine': (
        (0.31, 0.23, 0.25, 0.2),
        (0.35, 0.22, 0.26, 0.17),
        (0.39, 0.21, 0.26, 0.14),
        (0.42, 0.21, 0.26, 0.12),
    ),
    'softmax': (
        (0.31, 0.23, 0.25, 0.2),
        (0.36, 0.22, 0.25, 0.17),
        (0.41, 0.2, 0.24, 0.15),
        (0.44, 0.19, 0.23, 0.13),
    ),
}


def queries_and_keys() -> tuple[Tensor, Tensor]:
    """Queries from the shortest to the longest, and keys, both ``(4, 2)``."""
    lengths = torch.tensor(LENGTHS, dtype=torch.float64)
    query = torch.tensor(LONGEST_QUERY, dtype=torch.float64)
    return torch.outer(lengths, query), torch.tensor(KEYS, dtype=torch.float64)


def weights_of_each_kind() -> dict[str, Tensor]:
    """Weights of each query on each key, ``(4, 4)``, by kind of attention."""
    q_LD, k_MD = (part[None, None] for part in queries_and_keys())
    # ReLU changes nothing: all coordinates are positive.
    weights = {
        'linear': linear_weights(q_LD, k_MD),
        'InLine': inline_weights(q_LD, k_MD, scale=2**-0.5),
        'softmax': softmax_weights(q_LD, k_MD, scale=2**-0.5),
    }
    return {kind: w_BNLM[0, 0] for kind, w_BNLM in weights.items()}


def plot_parallel_queries(file: Path) -> None:
    """Draw keys and queries, and the weights of each kind of attention as bars."""
    figure = Figure(figsize=(13, 3.4), layout='constrained')
    plane, *panels = figure.subplots(1, 4, width_ratios=[1, 1.3, 1.3, 1.3])
    _draw_plane(plane)
    for axes, (kind, weights_LM) in zip(panels, weights_of_each_kind().items(), strict=True):
        _draw_weights(axes, weights_LM)
        axes.set_title(f'{kind} attention', fontsize=11)
    figure.savefig(file, dpi=DPI)


def _draw_plane(axes: Axes) -> None:
    q_LD, k_MD = queries_and_keys()
    for number, (x, y) in enumerate(q_LD.tolist(), start=1):
        axes.annotate('', (x, y), (0, 0), arrowprops=dict(arrowstyle='->', color='0.3', lw=1.2))
        axes.annotate(f'q{number}', (x, y), (4, 2), textcoords='offset points', fontsize=9)
    for number, (x, y) in enumerate(k_MD.tolist(), start=1):
        axes.plot(x, y, 'o', color=COLOURS[number - 1])
        axes.annotate(f'k{number}', (x, y), (5, 3), textcoords='offset points', fontsize=9)
    axes.set(xlim=(0, 2.3), ylim=(0, 2.3), aspect='equal')
    axes.set_title('keys and parallel queries', fontsize=11)
    axes.grid(alpha=0.3)


def _draw_weights(axes: Axes, weights_LM: Tensor) -> None:
    for query, row in enumerate(weights_LM.tolist()):
        for key, weight in enumerate(row):
            place = query + 0.22 * (key - 1.5)
            axes.bar(place, weight, width=0.2, color=COLOURS[key])
            label = f'{weight:.2f}'.lstrip('0')
            axes.text(place, weight + 0.005, label, ha='center', va='bottom', fontsize=7)
    axes.set_xticks(range(4), [f'q{number}' for number in range(1, 5)])
    axes.set(ylim=(0, 0.5), ylabel='weight of k1 to k4')
    axes.grid(axis='y', alpha=0.3)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit('usage: python -m mminline.analysis.parallel_queries FILE.png')
    plot_parallel_queries(Path(sys.argv[1]))
