"""Report on single queries: their weights over the image."""

import argparse
import json
import re
from pathlib import Path

from mmengine.config import Config
from mmengine.utils import track_iter_progress
from torch import nn

import _subjects
from mminline.analysis import WeightMaps, find_layers, watch, weight_maps
from mminline.analysis.map_plots import Panel, plot_maps


def report_maps(args: argparse.Namespace) -> None:
    """Draw the weights of single queries over the image.

    Shown are the attention, the local residual (the mean over channels of its 3x3 kernels) and
    their sum, in multiples of the uniform weight 1/N; red is positive, blue negative. One figure
    for each model and image.
    """
    paths = _subjects.list_images(args.images, args.limit)
    for subject in args.subjects:
        config = _subjects.read_config(subject, args.cfg_options, args.out)
        model = _subjects.load_model(subject, config)
        name, layer = choose_layer(find_layers(model), args.layer)
        for path in track_iter_progress(paths):
            draw_maps(args, subject.name, model, config, {name: layer}, path)
        print()
    print(f'Figures and numbers are in {args.out}.')


def choose_layer(layers: dict[str, nn.Module], wanted: str | None) -> tuple[str, nn.Module]:
    """The layer of that name, or a good one to look at first."""
    if wanted is None:
        second = [name for name in layers if name.startswith('2.')]
        wanted = second[-1] if second else list(layers)[-1]
    if wanted not in layers:
        raise ValueError(f'--layer has to be one of {", ".join(layers)}, got {wanted}')
    return wanted, layers[wanted]


def draw_maps(
    args: argparse.Namespace,
    subject: str,
    model: nn.Module,
    config: Config,
    layer: dict[str, nn.Module],
    path: Path,
) -> None:
    """One figure: a row for each query, and for each head if asked for."""
    picture = _subjects.read_picture(model, config, path)
    points = choose_points(args, picture)
    seen = []
    with watch(layer, lambda name, attention: seen.append(attention)):
        _subjects.run(model, picture)
    (attention,) = seen
    panels, numbers = [], []
    (name,) = layer
    extent = picture.extent
    for x, y in points:
        row, column = (
            min(int(pixel / length * cells), cells - 1)
            for pixel, length, cells in zip((y, x), extent[::-1], attention.hw_shape, strict=True)
        )
        maps = weight_maps(attention, (row, column))
        residual = None if maps.residual is None else maps.residual.tolist()
        numbers.append(
            dict(
                point=(x, y),
                cell=(row, column),
                attention=maps.attention.tolist(),
                residual=residual,
            )
        )
        height, width = attention.hw_shape
        middle = ((column + 0.5) / width * extent[0], (row + 0.5) / height * extent[1])
        panels += _panels(args.heads, f'x={x:g}, y={y:g}', middle, maps)
    stem = re.sub(r'[^\w.-]+', '-', f'map_{subject}_{path.stem}_{name}')
    title = f'{subject}, layer {name} ({attention.kind})'
    plot_maps(picture.image_HWC, panels, extent, title, args.out / f'{stem}.png')
    (args.out / f'{stem}.json').write_text(json.dumps(dict(layer=name, queries=numbers)))


def choose_points(
    args: argparse.Namespace, picture: _subjects.Picture
) -> list[tuple[float, float]]:
    """Queries in pixels of the image: those asked for, or evenly spread ones."""
    height, width = picture.image_HWC.shape[:2]
    for x, y in args.point or []:
        if not (0 <= x < width and 0 <= y < height):
            raise ValueError(
                f'--point has to be inside the image {picture.path.name} of {width} x {height} px, '
                f'got {x:g} {y:g}'
            )
    rows, columns = args.grid
    return args.point or [
        (width * (column + 0.5) / columns, height * (row + 0.5) / rows)
        for row in range(rows)
        for column in range(columns)
    ]


def _panels(heads: str, where: str, point: tuple[float, float], maps: WeightMaps) -> list[Panel]:
    """Rows of a figure for one query, weights in multiples of the uniform one."""
    parts = [maps.attention]
    if maps.residual is not None:
        parts += [maps.residual, maps.total]
    arrays = [maps.keys * part.cpu().numpy() for part in parts]
    if heads == 'mean':
        return [Panel(where, point, [array.mean(axis=0) for array in arrays])]
    return [
        Panel(f'{where}\nhead {head + 1}', point, [array[head] for array in arrays])
        for head in range(len(arrays[0]))
    ]
