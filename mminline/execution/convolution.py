"""3x3 convolutions of necks and heads on a CPU: which of them run by Winograd's algorithm."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from . import winograd
from .decision import is_plain_inference

# Below these, the transforms of kernel and tiles cost more than they save.
FEWEST_TILES, FEWEST_CHANNELS = 100, 64

# Size of a whole image and of the part of it that runs.
_sizes = ContextVar('sizes', default=((1, 1), (1, 1)))


@contextlib.contextmanager
def as_part_of(whole: tuple[int, int], part: tuple[int, int]) -> Iterator[None]:
    """Let maps of a part of an image run as those of the whole: the two forms round differently.

    Args:
        whole: Height and width of the image.
        part: Height and width of the part.
    """
    token = _sizes.set((whole, part))
    try:
        yield
    finally:
        _sizes.reset(token)


def suits_winograd(conv: nn.Conv2d) -> bool:
    """Whether the settings of a convolution are those that the fast form knows."""
    return (
        (conv.kernel_size, conv.stride, conv.dilation, conv.groups) == ((3, 3), (1, 1), (1, 1), 1)
        and conv.padding_mode == 'zeros'
        and conv.padding in ((0, 0), (1, 1))
        and min(conv.in_channels, conv.out_channels) >= FEWEST_CHANNELS
    )


def run_convolution(conv: nn.Conv2d, x_BCHW: Tensor) -> Tensor:
    """Run a convolution that suits, in the fast form in inference where maps are large enough."""
    padding = conv.padding[0]
    sides = [
        cells * whole // part
        for cells, whole, part in zip(x_BCHW.shape[2:], *_sizes.get(), strict=False)
    ]
    fits = x_BCHW.dim() == 4 and x_BCHW.shape[1] == conv.weight.shape[1]
    if (
        fits
        and conv.weight.dtype == torch.float32
        and is_plain_inference(x_BCHW)
        and len(x_BCHW) * winograd.count_tiles(sides, padding) >= FEWEST_TILES
    ):
        return winograd.convolve(x_BCHW, conv.weight, conv.bias, padding)
    return type(conv).forward(conv, x_BCHW)
