"""What the backbone of a detector or segmentor is given of an image, and where its maps lie."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..models.backbones.padding import find_sizes


class ModelInput(NamedTuple):
    """An image as a backbone takes it.

    Args:
        inputs_1CHW: Resized, normalised and padded.
        size: Height and width of it that the backbone runs on: padding is left out where the
            backbone ignores it.
        scale: Factors of x and y from the image to the input.
    """

    inputs_1CHW: Tensor
    size: tuple[int, int]
    scale: tuple[float, float]

    def extent(self, hw_shape: tuple[int, int]) -> tuple[float, float]:
        """Width and height that a map covers in pixels of the image, from its top left corner.

        The cells at the right and at the bottom may stand for more than there is of the image.
        """
        height, width = (
            cells * _stride(side, cells) for side, cells in zip(self.size, hw_shape, strict=True)
        )
        return width / self.scale[0], height / self.scale[1]


def _stride(side: int, cells: int) -> float:
    """Pixels from cell to cell: a power of 2 if one gives so many cells, the last one cut off."""
    stride = 1
    while stride * cells < side:
        stride *= 2
    return stride if (cells - 1) * stride < side else side / cells


def prepare_input(model: nn.Module, packed: dict) -> ModelInput:
    """Bring what the test pipeline of a model gives into the form that its backbone takes."""
    batch = dict(inputs=[packed['inputs']], data_samples=[packed['data_samples']])
    inputs_1CHW = model.data_preprocessor(batch, False)['inputs']
    scale = packed['data_samples'].metainfo.get('scale_factor', (1.0, 1.0))
    backbone, sizes = getattr(model, 'backbone', None), None
    if getattr(backbone, 'ignore_padding', False):
        sizes = find_sizes(inputs_1CHW, backbone.pad_value, backbone.smallest_side)
    (size,) = sizes or [tuple(inputs_1CHW.shape[-2:])]
    return ModelInput(inputs_1CHW, size, scale)


@torch.no_grad()
def run_features(model: nn.Module, inputs_1CHW: Tensor) -> None:
    """Run all of a model that has attention in it: backbone and neck."""
    model.extract_feat(inputs_1CHW)
