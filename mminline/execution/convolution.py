"""3x3 convolutions of necks and heads on a CPU: which of them run by Winograd's algorithm."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from . import winograd
from .decision import is_plain_inference

# Below these, the transforms of kernel and tiles cost more than they save.
FEWEST_TILES, FEWEST_CHANNELS = 100, 64

# Counts the tiles by which a map is judged, from its sides and the padding.
_count_tiles = ContextVar('count_tiles', default=winograd.count_tiles)


@contextlib.contextmanager
def as_part_of(whole: tuple[int, int], part: tuple[int, int]) -> Iterator[None]:
    """Let maps of a part of an image run as those of the whole: the two forms round differently.

    Args:
        whole: Height and width of the image.
        part: Height and width of the part.
    """

    def count(sides: Sequence[int], padding: int) -> int:
        pairs = zip(sides, whole, part, strict=True)
        return winograd.count_tiles([cells * of // to for cells, of, to in pairs], padding)

    with _judged_by(count):
        yield


@contextlib.contextmanager
def direct() -> Iterator[None]:
    """Let all convolutions run directly: in the other form, cells of a tile depend on each other."""
    with _judged_by(lambda sides, padding: 0):
        yield


@contextlib.contextmanager
def _judged_by(count: Callable[[Sequence[int], int], int]) -> Iterator[None]:
    token = _count_tiles.set(count)
    try:
        yield
    finally:
        _count_tiles.reset(token)


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
        and len(x_BCHW) * _count_tiles.get()(x_BCHW.shape[2:], padding) >= FEWEST_TILES
    ):
        return winograd.convolve(x_BCHW, conv.weight, conv.bias, padding)
    return type(conv).forward(conv, x_BCHW)
