"""Kernels of layers that run in tiles: those that PyTorch takes for the whole image.

On a CPU it chooses some of them by the size of a map. Two kernels add in a different order, so a
small tile would differ from the whole image in the last digits.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..execution.score_rows import OTHER_KERNEL, from_scores
from .tiles import Tile

# Numbers of a map up to which convolutions do without oneDNN.
SMALL_CONVOLUTION = 20480


class KernelsOfTheWhole(TorchFunctionMode):
    """Let convolutions and bilinear resizing take the kernels that the whole image has.

    Args:
        tile: The tile that runs.
        shape: Height and width of the whole image.
    """

    def __init__(self, tile: Tile, shape: tuple[int, int]) -> None:
        super().__init__()
        self.spans = (tile.rows, tile.columns)
        self.shape = shape

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.conv2d:
            return self._convolve(*args, **kwargs)
        if func is F.interpolate:
            return self._resize(*args, **kwargs)
        return func(*args, **kwargs)

    def _convolve(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        """Do what ``F.conv2d`` does, with oneDNN if that is what the whole map has."""
        pairs = [
            (each, each) if isinstance(each, int) else each for each in (padding, stride, dilation)
        ]
        whole_numbers = math.prod((*input.shape[:2], *self._whole_size(input)))
        is_other = input.numel() <= SMALL_CONVOLUTION < whole_numbers
        if not is_other or isinstance(padding, str) or not _suits_onednn(input, weight, *pairs[1:]):
            return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
        return torch.mkldnn_convolution(input.contiguous(), weight, bias, *pairs, groups)

    def _resize(
        self,
        input: Tensor,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = 'nearest',
        align_corners: bool | None = None,
        **options: Any,
    ) -> Tensor:
        """Do what ``F.interpolate`` does, and again if the kernel was the other one."""
        resized_BCHW = F.interpolate(input, size, scale_factor, mode, align_corners, **options)
        if mode != 'bilinear' or options.get('antialias') or not _is_ordinary(input):
            return resized_BCHW
        size, whole_size = tuple(resized_BCHW.shape[2:]), self._whole_size(resized_BCHW)
        if sum(size) > OTHER_KERNEL or sum(whole_size) <= OTHER_KERNEL:
            return resized_BCHW
        images = [
            from_scores(each).resize(size, bool(align_corners), whole_size).stack()
            for each in input
        ]
        return torch.stack(images)

    def _whole_size(self, map_BCHW: Tensor) -> tuple[int, int]:
        """Height and width that the map of the whole image has."""
        return tuple(
            cells * side // (span.last - span.first)
            for cells, side, span in zip(map_BCHW.shape[2:], self.shape, self.spans, strict=True)
        )


def _suits_onednn(map_BCHW: Tensor, weight: Tensor, stride: Any, dilation: Any) -> bool:
    """Whether a convolution of a large map would run by oneDNN."""
    if map_BCHW.device.type != 'cpu' or map_BCHW.dtype != torch.float32:
        return False
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    is_product = tuple(weight.shape[2:]) == tuple(stride) == tuple(dilation) == (1, 1)
    return not is_product or torch.get_num_threads() > 1


def _is_ordinary(map_BCHW: Tensor) -> bool:
    """Whether a map is on a CPU and not in channels-last order, which has a kernel of its own."""
    if map_BCHW.device.type != 'cpu':
        return False
    is_channels_last = map_BCHW.is_contiguous(memory_format=torch.channels_last)
    return map_BCHW.is_contiguous() or not is_channels_last  # a single cell has both orders
