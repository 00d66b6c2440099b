"""Answers of the page: from values of its components to values of its components.

All that is computed is in ``session.py``; here it is put into the order of the components.
"""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import gradio as gr

from .files import write_files
from .session import Explorer, Scene

PARTS = ('attention', 'local residual', 'sum')
MEAN = 'mean'
NO_SCENE = 'Pick or upload an image first.'


def explained(handler: Callable) -> Callable:
    """Write a user's mistake on the page, and leave everything else as it is.

    The message is the last output of the handler; it is empty if all went well.
    """

    @functools.wraps(handler)
    def run(self: 'Handlers', *args):
        try:
            return [*handler(self, *args), '']
        except ValueError as error:
            return {self.message: str(error)}

    return run


class Handlers:
    """Handlers of a page.

    Args:
        explorer: Models and images.
        folder: Where files to download are written.
        message: Component for messages.
    """

    def __init__(self, explorer: Explorer, folder: Path, message: gr.Markdown) -> None:
        self.explorer = explorer
        self.folder = folder
        self.message = message

    @explained
    def open(self, path: str | None, layer: str, head: str, score_thr: float) -> list:
        """Give the scene, whether it needs a threshold, and what ``look`` gives for its middle."""
        return self._open(path, layer, head, score_thr)

    def _open(self, path: str | Path | None, layer: str, head: str, score_thr: float) -> list:
        if not path:
            raise ValueError(NO_SCENE)
        scene = self.explorer.open(path)
        x, y = scene.middle
        has_scores = any(view.is_detection for view in scene.views)
        looked = self._look(scene, layer, head, score_thr, x, y)
        return [scene, gr.update(visible=has_scores), *looked]

    @explained
    def pick(self, index: int | None, *settings) -> list:
        """Open one of the images that the program was given."""
        images = self.explorer.images
        if not images:
            raise ValueError(NO_SCENE)
        if index is None or not 0 <= index < len(images):
            raise ValueError(f'There are images 0 to {len(images) - 1}, got {index}.')
        return self._open(images[int(index)], *settings)

    @explained
    def click(
        self, scene: Scene, layer: str, head: str, score_thr: float, event: gr.SelectData
    ) -> list:
        """Look at the query under a click, in pixels of a picture."""
        if scene is None:
            raise ValueError(NO_SCENE)
        x, y = (int(value / scene.scale) for value in event.index)
        return self._look(scene, layer, head, score_thr, x, y)

    @explained
    def look(self, scene: Scene, layer: str, head: str, score_thr: float, x: int, y: int) -> list:
        """Look at the query under a pixel of the image."""
        if scene is None:
            raise ValueError(NO_SCENE)
        return self._look(scene, layer, head, score_thr, x, y)

    def _look(self, scene: Scene, layer: str, head: str, score_thr: float, x: int, y: int) -> list:
        """Give x, y, heads to choose from, and for each model pictures and a line of text."""
        point = _checked_point(scene, x, y)
        heads = [view.heads(layer) for view in scene.views]
        head = head if head == MEAN or int(head) <= max(heads) else MEAN
        choices = [MEAN, *map(str, range(1, max(heads) + 1))]
        values = [*point, gr.update(choices=choices, value=head)]
        predictions = scene.draw_predictions(score_thr, point)
        for index, prediction in enumerate(predictions):
            maps, text = self._model_maps(scene, index, layer, _number(head), point)
            values += [prediction, *maps, text]
        return values

    def _model_maps(
        self, scene: Scene, index: int, layer: str, head: int | None, point: tuple[int, int]
    ) -> tuple[list, str]:
        """Pictures of one model, with None for parts that it has not, and what to say of them."""
        try:
            look = scene.look(index, layer, head, point)
        except ValueError as error:
            return [gr.update(value=None, visible=False)] * len(PARTS), str(error)
        pictures = scene.draw_maps(index, layer, look)
        missing = [None] * (len(PARTS) - len(pictures))
        updates = [
            gr.update(value=picture, visible=picture is not None)
            for picture in [*pictures, *missing]
        ]
        return updates, look.text

    def measure(self, scene: Scene | None, layer: str) -> list[str] | str:
        """Locality and confusion of a layer, for each model."""
        texts = [''] * len(self.explorer.models)
        if scene is not None:
            texts = [
                '<br>'.join(view.measure(layer).describe()) if layer in view.layers else ''
                for view in scene.views
            ]
        # Gradio takes a list for the value of the component, should there be one only.
        return texts if len(texts) > 1 else texts[0]

    @explained
    def redraw(self, scene: Scene | None, score_thr: float, x: int, y: int) -> list:
        """Draw the predictions with another threshold."""
        if scene is None:
            raise ValueError(NO_SCENE)
        return scene.draw_predictions(score_thr, _checked_point(scene, x, y))

    @explained
    def save(self, scene: Scene | None, layer: str, head: str, x: int, y: int) -> list:
        """Write the figure and the numbers."""
        if scene is None:
            raise ValueError(NO_SCENE)
        point = _checked_point(scene, x, y)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        return [[str(path) for path in write_files(folder, scene, layer, _number(head), point)]]


def _checked_point(scene: Scene, x: int | None, y: int | None) -> tuple[int, int]:
    """Read the fields x and y, which may be empty."""
    point = (x or 0, y or 0)
    scene.check_point(point)
    return point


def _number(head: str) -> int | None:
    return None if head == MEAN else int(head)
