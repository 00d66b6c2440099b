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

_is_direct = ContextVar('is_direct', default=False)


@contextlib.contextmanager
def direct_convolutions() -> Iterator[None]:
    """Let all convolutions run directly.

    By Winograd's algorithm an output rounds by its place in a tile of outputs and depends on all
    inputs of the tile, be it in the last digit. A part of a map would differ from the whole.
    """
    token = _is_direct.set(True)
    try:
        yield
    finally:
        _is_direct.reset(token)


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
    fits = x_BCHW.dim() == 4 and x_BCHW.shape[1] == conv.weight.shape[1]
    if (
        fits
        and conv.weight.dtype == torch.float32
        and is_plain_inference(x_BCHW)
        and winograd.count_tiles(x_BCHW.shape, padding) >= FEWEST_TILES
        and not _is_direct.get()
    ):
        return winograd.convolve(x_BCHW, conv.weight, conv.bias, padding)
    return type(conv).forward(conv, x_BCHW)
