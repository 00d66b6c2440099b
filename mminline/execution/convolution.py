"""3x3 convolutions of necks and heads on a CPU: which of them run by Winograd's algorithm."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor, nn

from . import winograd
from .decision import is_plain_inference, is_recording

# Below these, the transforms of kernel and tiles cost more than they save.
FEWEST_TILES, FEWEST_CHANNELS = 100, 64

# Cells of a larger stride run directly. They cost little, and by Winograd's algorithm an output
# depends on its whole tile, be it in the last digit: parts of an image would need a wide margin.
COARSEST_STRIDE = 8


class _Image(NamedTuple):
    """What maps are made of: a number of images, their sides, and those of the part that runs."""

    batch: int
    whole: Sequence[int]
    part: Sequence[int]


_image: ContextVar[_Image | None] = ContextVar('image', default=None)


def note_images(image_BCHW: Tensor) -> None:
    """Tell the convolutions to come which images their maps are of."""
    if not is_recording():
        batch, _, *sides = image_BCHW.shape
        _image.set(_Image(batch, sides, sides))


@contextlib.contextmanager
def as_part_of(whole: tuple[int, int], part: tuple[int, int]) -> Iterator[None]:
    """Let maps of a part of an image run as those of the whole: the two forms round differently.

    Args:
        whole: Height and width of the image.
        part: Height and width of the part; from its corner on, tiles are those of the whole if
            that is at a multiple of 32 px.
    """
    token = _image.set(_Image(1, whole, part))
    try:
        yield
    finally:
        _image.reset(token)


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
        and _count_tiles(x_BCHW.shape, padding) >= FEWEST_TILES
    ):
        if conv.weight.is_contiguous(memory_format=torch.channels_last):
            # The result of a convolution is in this order too, whichever of the two has it.
            x_BCHW = x_BCHW.contiguous(memory_format=torch.channels_last)
        return winograd.convolve(x_BCHW, conv.weight, conv.bias, padding)
    return type(conv).forward(conv, x_BCHW)


def _count_tiles(shape: Sequence[int], padding: int) -> int:
    """Tiles by which maps are judged: none of coarse ones, those of the whole image of a part."""
    batch, _, *sides = shape
    image = _image.get()
    if image is not None and batch == image.batch:  # not regions of it
        if any(COARSEST_STRIDE * side < of for side, of in zip(sides, image.part, strict=True)):
            return 0
        pairs = zip(sides, image.whole, image.part, strict=True)
        sides = [side * whole // part for side, whole, part in pairs]
    return batch * winograd.count_tiles(sides, padding)
