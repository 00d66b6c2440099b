"""An image seen by a model: its prediction, and the weights of any query of any layer.

The inputs of all attention layers are kept while the model runs. The weights of a query are then
one product of the query with the keys of its layer, so they take time linear in the tokens.
"""

import numpy as np
import torch
from mmengine.structures import BaseDataElement
from torch import nn

from ..analysis import AttentionWeights, kept_inputs, read_layer
from ..analysis.model_input import prepare_input, run_features
from ..analysis.reports.maps import Query, read_query
from ..apis import Predictor
from .measures import Measures, measure_layer

Point = tuple[float, float]


class View:
    """An image seen by a model.

    Args:
        model: The model.
        predictor: Its predictions, of all objects that may be shown.
        layers: Its attention layers by name.
        image_HWC: The image, blue first.
    """

    def __init__(
        self,
        model: nn.Module,
        predictor: Predictor,
        layers: dict[str, nn.Module],
        image_HWC: np.ndarray,
    ) -> None:
        self.image_HWC = image_HWC
        self.sample = predictor.predict(image_HWC)
        self._predictor = predictor
        self.layers = layers
        self._input = prepare_input(model, predictor.pipeline(image_HWC))
        with kept_inputs(layers) as self._inputs:
            if layers:
                run_features(model, self._input.inputs_1CHW)
        self._last_read: tuple[str, AttentionWeights] | None = None
        self._last_drawn: tuple[float, np.ndarray] | None = None
        self._measures: dict[str, Measures] = {}

    @property
    def is_detection(self) -> bool:
        return 'pred_instances' in self.sample

    def draw(self, score_thr: float) -> np.ndarray:
        """Draw the prediction, without objects of a lower score."""
        last = self._last_drawn  # another thread may replace it meanwhile
        if last is None or last[0] != score_thr:
            shown = self.sample.new()
            for name, part in self.sample.items():
                shown.set_field(_above(part, score_thr) if name == 'pred_instances' else part, name)
            last = score_thr, self._predictor.draw(self.image_HWC, shown)
            self._last_drawn = last
        return last[1]

    def heads(self, layer: str) -> int:
        """Heads of a layer; 0 if there is no such layer."""
        return self.attention(layer).q_BNLD.shape[1] if layer in self.layers else 0

    @torch.no_grad()
    def attention(self, layer: str) -> AttentionWeights:
        """Read a layer; queries, keys and values of the last one are kept."""
        last = self._last_read  # another thread may replace it meanwhile
        if last is None or last[0] != layer:
            last = layer, read_layer(self.layers[layer], self._inputs[layer])
            self._last_read = last
        return last[1]

    def extent(self, layer: str) -> tuple[float, float]:
        """Width and height that the map of a layer covers, in pixels of the image."""
        return self._input.extent(self.attention(layer).hw_shape)

    @torch.no_grad()
    def query(self, layer: str, point: Point) -> Query:
        """Weights of the query under a point, x and y in pixels of the image."""
        return read_query(self.attention(layer), self.extent(layer), point)

    @torch.no_grad()
    def measure(self, layer: str) -> Measures:
        """Locality and confusion of a layer on this image, counted once."""
        if layer not in self._measures:
            self._measures[layer] = measure_layer(self.attention(layer))
        return self._measures[layer]


def _above(found: BaseDataElement, score_thr: float) -> BaseDataElement:
    return found[found.scores >= score_thr]
