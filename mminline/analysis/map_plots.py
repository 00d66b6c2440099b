"""Figures of the weights of single queries, over the image."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .plots import DPI

COLUMNS = ('attention', 'local residual', 'sum')


class QueryRow(NamedTuple):
    """Weights of one query: one row of a figure.

    Args:
        title: Label of the row.
        point: Middle of the query's token in pixels of the image, x and y.
        maps: Attention, local residual and their sum; only the first for a layer without.
        extent: Width and height that the maps cover, in pixels of the image: more than its own
            where it was padded.
    """

    title: str
    point: tuple[float, float]
    maps: list[np.ndarray]
    extent: tuple[float, float]


def plot_maps(
    image_HWC: np.ndarray,
    queries: Sequence[QueryRow],
    title: str,
    file: Path,
) -> None:
    """Draw weights over a pale image, in multiples of the uniform weight.

    Red is positive, blue negative, white zero, with the same range on both sides; where there is
    no weight the image shows through.

    Args:
        image_HWC: The image, RGB.
        queries: One for each row.
        title: Of the figure.
        file: Where to save.
    """
    height, width = image_HWC.shape[:2]
    columns = 1 + max(len(query.maps) for query in queries)
    figure = Figure(
        figsize=(2.6 * columns, 0.6 + 2.3 * len(queries) * height / width), layout='constrained'
    )
    all_axes = figure.subplots(len(queries), columns, squeeze=False)
    for row, query in enumerate(queries):
        all_axes[row, 0].imshow(image_HWC, extent=(0, width, height, 0))
        all_axes[row, 0].set_ylabel(query.title, fontsize=9)
        shown = all_axes[row, : 1 + len(query.maps)]
        for axes, values_HW in zip(shown[1:], query.maps, strict=True):
            _draw_weights(figure, axes, image_HWC, values_HW, query.extent)
        for axes in all_axes[row, len(shown) :]:
            axes.set_axis_off()
        for axes in shown:
            axes.plot(*query.point, '+', color='black', ms=11, mew=3)
            axes.plot(*query.point, '+', color='#F0E442', ms=10, mew=1.5)
            axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    for axes, name in zip(all_axes[0], ('image and query', *COLUMNS), strict=False):
        axes.set_title(name, fontsize=10)
    figure.suptitle(f'{title}; weights in multiples of 1/N', fontsize=10)
    figure.savefig(file, dpi=DPI)


def _draw_weights(
    figure: Figure,
    axes: Axes,
    image_HWC: np.ndarray,
    values_HW: np.ndarray,
    extent: tuple[float, float],
) -> None:
    height, width = image_HWC.shape[:2]
    grey_HW = image_HWC.mean(axis=-1)
    axes.imshow(grey_HW, extent=(0, width, height, 0), cmap='gray', vmin=-255, vmax=255)
    size_HW = np.abs(values_HW.astype(float))
    limit = max(size_HW.max(), np.finfo(np.float32).tiny)
    drawn = axes.imshow(
        values_HW,
        extent=(0, extent[0], extent[1], 0),
        cmap='RdBu_r',
        vmin=-limit,
        vmax=limit,
        alpha=np.clip(0.2 + 0.8 * size_HW / limit, 0, 1),
        interpolation='nearest',
    )
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=7)
    bar.solids.set_alpha(1)
