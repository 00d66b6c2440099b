"""The image as the model sees it, normalised and padded, in bands of rows."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from .tiles import round_up

BAND_PIXELS = 1 << 22


class ModelImage:
    """Rows of an image as the data preprocessor of a model makes them.

    Args:
        model: Detector or segmentor with a ``data_preprocessor``.
        pixels: Image (height, width, channel) as OpenCV reads it: an array, or anything else with
            ``shape`` whose rows can be cut out by ``pixels[top:bottom]``.
    """

    def __init__(self, model: nn.Module, pixels: Sequence) -> None:
        shape = tuple(pixels.shape)
        if len(shape) != 3 or shape[2] != 3:
            raise ValueError(f'an image has to have the shape (height, width, 3), got {shape}')
        self.pixels = pixels
        self.shape = shape[:2]
        self.padded_shape = tuple(map(round_up, self.shape))
        self._preprocess = model.data_preprocessor
        self._pad_value = _pad_value(model.data_preprocessor)

    @property
    def band_rows(self) -> int:
        """Rows that are normalised at a time."""
        return max(BAND_PIXELS // self.padded_shape[1], 1)

    def rows(self, top: int, bottom: int, width: int | None = None) -> Tensor:
        """Normalise rows, (1, C, rows, width); lines outside the image are padding.

        Args:
            top: First row.
            bottom: Row behind the last one.
            width: Columns; None for those of the padded image.
        """
        width = width or self.padded_shape[1]
        # Contiguous, because tensors cannot go backwards, as ``image[..., ::-1]`` does.
        band_HWC = np.ascontiguousarray(self.pixels[top : min(bottom, self.shape[0])])
        band_HWC = torch.tensor(band_HWC)
        # The preprocessors may pad what they get, and want samples to note that in.
        data = dict(inputs=[band_HWC.permute(2, 0, 1)], data_samples=[BaseDataElement()])
        band_1CHW = self._preprocess(data, training=False)['inputs']
        band_1CHW = band_1CHW[:, :, : len(band_HWC), : self.shape[1]]
        missing = (0, width - self.shape[1], 0, bottom - top - len(band_HWC))
        return F.pad(band_1CHW, missing, value=self._pad_value)

    def find_size(self, pad_value: float, smallest: int) -> tuple[int, int]:
        """Find height and width without the lines at the end that are padding.

        This is what a backbone finds on the padded image, see ``models.backbones.padding``.
        Reading goes from the bottom up and ends as soon as both sides are known.
        """
        height, width = self.padded_shape
        # Columns added on the right are known; that of the image have to be looked at.
        columns = self.shape[1] if self._pad_value == pad_value else width
        found = [0, 0]
        for bottom in range(height, 0, -self.band_rows):
            top = max(bottom - self.band_rows, 0)
            is_image_HW = (self.rows(top, bottom) != pad_value).any(dim=1)[0]
            for axis, start in ((0, top), (1, 0)):
                lines = is_image_HW.any(dim=1 - axis).nonzero()
                if len(lines):
                    found[axis] = max(found[axis], start + int(lines[-1]) + 1)
            if found[1] >= columns:
                break
        return tuple(max(end, smallest) for end in found) if all(found) else (height, width)


def _pad_value(preprocessor: nn.Module) -> float:
    """Value of padding behind the normalisation: mmdet and mmseg have different names for it."""
    for name in ('pad_value', 'pad_val'):
        if hasattr(preprocessor, name):
            return getattr(preprocessor, name)
    return 0
