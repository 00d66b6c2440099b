"""Report on single queries: their weights over the image."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import nn

from .. import AttentionWeights, WeightMaps, attention_hooks, find_layers, weight_maps
from ..map_plots import QueryRow, plot_maps
from ..model_input import run_features
from .inputs import InputImage, ModelSource, read_images

Point = tuple[float, float]


def report_maps(
    models: Sequence[ModelSource],
    images: Sequence[Path],
    out: Path,
    points: Sequence[Point] | None = None,
    grid: tuple[int, int] = (2, 2),
    layer: str | None = None,
    heads: str = 'mean',
) -> None:
    """Draw the weights of single queries over the image.

    Shown are the attention, the local residual (the mean over channels of its 3x3 kernels) and
    their sum, in multiples of the uniform weight 1/N; red is positive, blue negative. One figure
    for each model and image.

    Args:
        models: Models to draw.
        images: Image files.
        out: Folder for map_MODEL_IMAGE_LAYER.json and .png.
        points: Queries, x and y in pixels of the image file.
        grid: Rows and columns of queries that are spread evenly if there are no points.
        layer: Name of the layer, such as '3.1'; None for the last of the second stage.
        heads: 'mean' over heads, or 'each' of them.
    """
    out.mkdir(parents=True, exist_ok=True)
    for source in models:
        model = source.load()
        name, module = choose_layer(find_layers(model), layer)
        for image in read_images(model, images):
            places = choose_points(image, points, grid)
            attention = read_attention(model, module, image)
            stem = re.sub(r'[^\w.-]+', '-', f'map_{source.name}_{image.path.stem}_{name}')
            extent = image.input.extent(attention.hw_shape)
            queries = [read_query(attention, extent, point) for point in places]
            rows = [row for query in queries for row in figure_rows(query, extent, heads)]
            title = f'{source.name}, layer {name} ({attention.kind})'
            plot_maps(image.image_HWC, rows, title, out / f'{stem}.png')
            numbers = dict(layer=name, queries=[query.numbers() for query in queries])
            (out / f'{stem}.json').write_text(json.dumps(numbers))
    print(f'Figures and numbers are in {out}.')


def choose_layer(layers: dict[str, nn.Module], name: str | None) -> tuple[str, nn.Module]:
    """Return the layer of that name, or a good one to look at first."""
    if name is None:
        second = [key for key in layers if key.startswith('2.')]
        name = second[-1] if second else list(layers)[-1]
    if name not in layers:
        raise ValueError(f'layer has to be one of {", ".join(layers)}, got {name}')
    return name, layers[name]


def choose_points(
    image: InputImage, points: Sequence[Point] | None, grid: tuple[int, int]
) -> Sequence[Point]:
    """Return queries in pixels of the image: those asked for, or evenly spread ones."""
    height, width = image.image_HWC.shape[:2]
    for x, y in points or []:
        if not (0 <= x < width and 0 <= y < height):
            raise ValueError(
                f'point has to be inside the image {image.path.name} of {width} x {height} px, '
                f'got {x:g} {y:g}'
            )
    rows, columns = grid
    return points or [
        (width * (column + 0.5) / columns, height * (row + 0.5) / rows)
        for row in range(rows)
        for column in range(columns)
    ]


def read_attention(model: nn.Module, layer: nn.Module, image: InputImage) -> AttentionWeights:
    """Run a model on an image and return the attention of one layer."""
    found = []
    with attention_hooks({'': layer}, lambda name, attention: found.append(attention)):
        run_features(model, image.input.inputs_1CHW)
    (attention,) = found
    return attention


class Query(NamedTuple):
    """The weights of one query."""

    point: Point  # x and y in pixels of the image
    cell: tuple[int, int]  # row and column of its token
    centre: Point  # of the token, in pixels of the image
    maps: WeightMaps

    def numbers(self) -> dict:
        """Return what is saved of it."""
        residual = self.maps.residual
        return dict(
            point=self.point,
            cell=self.cell,
            attention=self.maps.attention.tolist(),
            residual=None if residual is None else residual.tolist(),
        )


def read_query(attention: AttentionWeights, extent: tuple[float, float], point: Point) -> Query:
    """Find the token under a point, and its weights.

    Args:
        attention: The attention, of one image.
        extent: Width and height that the map covers, in pixels of the image.
        point: x and y, in pixels of the image.
    """
    (x, y), (right, bottom), (height, width) = point, extent, attention.hw_shape
    row = min(int(y / bottom * height), height - 1)
    column = min(int(x / right * width), width - 1)
    centre = ((column + 0.5) / width * right, (row + 0.5) / height * bottom)
    return Query(point, (row, column), centre, weight_maps(attention, (row, column)))


def figure_rows(query: Query, extent: tuple[float, float], heads: str) -> list[QueryRow]:
    """Make the rows of a figure for one query."""
    arrays = part_arrays(query.maps)
    title = f'x={query.point[0]:g}, y={query.point[1]:g}'
    if heads == 'mean':
        return [QueryRow(title, query.centre, [array.mean(axis=0) for array in arrays], extent)]
    return [
        QueryRow(
            f'{title}\nhead {head + 1}', query.centre, [array[head] for array in arrays], extent
        )
        for head in range(len(arrays[0]))
    ]


def part_arrays(maps: WeightMaps) -> list[np.ndarray]:
    """Attention, and local residual and sum if there are any, in multiples of 1/N, each (N, H, W).

    The N of the unit is the number of keys that the query sees: its uniform weight is 1/N.
    """
    parts = [maps.attention]
    if maps.residual is not None:
        parts += [maps.residual, maps.total]
    return [maps.keys * part.cpu().numpy() for part in parts]
