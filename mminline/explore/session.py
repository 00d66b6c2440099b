"""What the page asks for, for all models at once: open an image, look at a query."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from ..analysis.reports.maps import Query, part_arrays
from .drawing import add_mark, add_scale, draw_weights, pale_grey
from .images import read_image, resize, shown_scale
from .model import ExplorableModel
from .view import Point, View


class Look(NamedTuple):
    """Where a query of one model looks."""

    query: Query
    maps: list[np.ndarray]  # attention, local residual and sum, or the first; multiples of 1/N
    text: str


class Scene:
    """An image and what each model sees in it.

    Args:
        path: Image file.
        models: The models.
    """

    def __init__(self, path: str | Path, models: Sequence[ExplorableModel]) -> None:
        self.name = Path(path).name
        self.image_HWC = read_image(path)
        self.models = models
        self.views: list[View] = [model.look(self.image_HWC) for model in models]
        self.scale = shown_scale(self.image_HWC)
        self._pale_HWC = pale_grey(resize(self.image_HWC, self.scale))

    @property
    def middle(self) -> Point:
        """Pixel in the middle of the image, to look at first."""
        height, width = self.image_HWC.shape[:2]
        return width // 2, height // 2

    def check_point(self, point: Point) -> None:
        """Raise an error for a pixel that the image does not have."""
        height, width = self.image_HWC.shape[:2]
        if not (0 <= point[0] < width and 0 <= point[1] < height):
            raise ValueError(
                f'A point has to be inside the image of {width} x {height} px, '
                f'got x = {point[0]:g}, y = {point[1]:g}.'
            )

    def draw_predictions(self, score_thr: float, point: Point) -> list[np.ndarray]:
        """Draw the prediction of each model, red first, with the query marked."""
        return [
            self._finish(resize(view.draw(score_thr), self.scale), point) for view in self.views
        ]

    def look(self, index: int, layer: str, head: int | None, point: Point) -> Look:
        """Read the weights of the query of a model under a point.

        Args:
            index: Which model.
            layer: Name of the layer, such as '3.1'.
            head: Number of the head, from 1 on; None for the mean over heads.
            point: x and y in pixels of the image.
        """
        self.check_point(point)
        model, view = self.models[index], self.views[index]
        if not model.layers:
            raise ValueError(model.trouble)
        if layer not in model.layers:
            raise ValueError(f'{model.name} has no layer {layer}, only {", ".join(model.layers)}.')
        query = view.query(layer, point)
        heads = len(query.maps.attention)
        if head is not None and not 1 <= head <= heads:
            raise ValueError(f'Layer {layer} of {model.name} has no head {head}, only {heads}.')
        chosen = (lambda part: part.mean(axis=0)) if head is None else (lambda part: part[head - 1])
        maps = [chosen(part) for part in part_arrays(query.maps)]
        return Look(query, maps, _describe(view, layer, query, maps[-1]))

    def draw_maps(self, index: int, layer: str, look: Look) -> list[np.ndarray]:
        """Draw the maps of a look over the image, red first, each with its own scale."""
        covered = tuple(self.scale * side for side in self.views[index].extent(layer))
        pictures = []
        for values_HW in look.maps:
            picture_HWC = draw_weights(self._pale_HWC, values_HW, covered)
            limit = float(np.abs(values_HW).max())
            pictures.append(self._finish(picture_HWC, look.query.point, limit))
        return pictures

    def _finish(
        self, picture_HWC: np.ndarray, point: Point, limit: float | None = None
    ) -> np.ndarray:
        x, y = ((value + 0.5) * self.scale for value in point)
        picture_HWC = add_mark(picture_HWC, (x, y))
        if limit is not None:
            picture_HWC = add_scale(picture_HWC, limit)
        return cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2RGB)


def _describe(view: View, layer: str, query: Query, weights_HW: np.ndarray) -> str:
    attention = view.attention(layer)
    height, width = attention.hw_shape
    negative = -weights_HW[weights_HW < 0].sum() / max(np.abs(weights_HW).sum(), 1e-30)
    (row, column), heads = query.cell, len(query.maps.attention)
    return (
        f'layer {layer} ({attention.kind}), {height} x {width} tokens, '
        f'{heads} head{"s" * (heads != 1)}; query in row {row}, column {column}; '
        f'N = {query.maps.keys} keys; {100 * negative:.3g} % of the absolute weight is negative'
    )


class Explorer:
    """Models to look with, and images to look at.

    Args:
        models: The models, with different names.
        images: Image files to pick from; more can be uploaded.
    """

    def __init__(self, models: Sequence[ExplorableModel], images: Sequence[Path] = ()) -> None:
        self.models = list(models)
        self.images = list(images)
        # In the order of the first model that has a layer of that name.
        self.layer_names = list(dict.fromkeys(name for model in models for name in model.layers))

    @property
    def first_layer(self) -> str | None:
        """The last layer of the second stage, or the last one: a good one to look at first."""
        second = [name for name in self.layer_names if name.startswith('2.')]
        return (second or self.layer_names or [None])[-1]

    def open(self, path: str | Path) -> Scene:
        """Predict for an image with every model."""
        return Scene(path, self.models)
