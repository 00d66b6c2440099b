"""The figure and the numbers of a look, as files to keep."""

import json
import re
from pathlib import Path

import cv2
import numpy as np

from ..analysis.map_plots import QueryRow, plot_maps
from .session import Scene
from .view import Point


def write_files(
    folder: Path, scene: Scene, layer: str, head: int | None, point: Point
) -> list[Path]:
    """Write what all models with that layer and head give a query.

    Returns:
        The figure (PNG, a row for each model), all weights of all heads (NPZ: MODEL.attention and
        MODEL.residual, each heads x rows x columns), and locality, confusion and where the query
        is (JSON).
    """
    rows, arrays, numbers = [], {}, {}
    for index, (model, view) in enumerate(zip(scene.models, scene.views, strict=True)):
        try:
            look = scene.look(index, layer, head, point)
        except ValueError as error:
            numbers[model.name] = dict(error=str(error))
            continue
        maps = look.query.maps
        rows.append(QueryRow(model.name, look.query.centre, look.maps, view.extent(layer)))
        arrays[f'{model.name}.attention'] = maps.attention.cpu().numpy()
        if maps.residual is not None:
            arrays[f'{model.name}.residual'] = maps.residual.cpu().numpy()
        numbers[model.name] = dict(
            kind=view.attention(layer).kind,
            cell=look.query.cell,
            keys=maps.keys,
            **view.measure(layer).numbers(),
        )
    if not rows:
        raise ValueError('There is nothing to save: no model has that layer and head.')
    title = f'{scene.name}, layer {layer}, {"mean over heads" if head is None else f"head {head}"}'
    stem = folder / re.sub(r'[^\w.-]+', '-', f'{scene.name}_{layer}_x{point[0]}_y{point[1]}')
    files = [Path(f'{stem}{suffix}') for suffix in ('.png', '.npz', '.json')]
    plot_maps(cv2.cvtColor(scene.image_HWC, cv2.COLOR_BGR2RGB), rows, title, files[0])
    np.savez_compressed(files[1], **arrays)
    settings = dict(
        image=scene.name, layer=layer, head='mean' if head is None else head, point=point
    )
    files[2].write_text(json.dumps(dict(settings, models=numbers), indent=2) + '\n')
    return files
