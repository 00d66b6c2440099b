"""A detector or segmentor, and its attention layers if it has any that can be read."""

import threading

import numpy as np
from torch import nn

from ..analysis import find_layers
from ..apis import Predictor
from .view import View

LOWEST_SCORE = 0.05  # objects below it are not kept, so that no threshold shows them


class ExplorableModel:
    """A model that images can be looked at with.

    Args:
        name: Its name on the page.
        model: From ``init_model``. Without attention layers it still predicts, and ``trouble``
            says which kinds of layers can be read.
    """

    def __init__(self, name: str, model: nn.Module) -> None:
        self.name = name
        self.model = model
        self.predictor = Predictor(model, LOWEST_SCORE)
        self.trouble = None
        try:
            self.layers = find_layers(model)
        except ValueError as error:
            self.layers, self.trouble = {}, f'No attention to show: {error}.'
        # Hooks of the model see every image that runs through it: one at a time.
        self._lock = threading.Lock()

    def look(self, image_HWC: np.ndarray) -> View:
        """Predict for an image, blue first, and keep the inputs of all attention layers."""
        with self._lock:
            return View(self.model, self.predictor, self.layers, image_HWC)
