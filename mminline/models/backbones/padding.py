"""Padding of a batch: where each image ends, and its maps without the rest.

Attention sums over all cells of a map, so the padding that makes a batch rectangular would change
every cell of an image, and its result would depend on its neighbours in the batch.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Real

import torch
from torch import Tensor

# Padding to a multiple of 32 is the usual case: the search for the end begins with as many lines.
SHORT = 32


def check_pad_value(pad_value: float) -> None:
    """Refuse a value that padding cannot have."""
    if not isinstance(pad_value, Real) or isinstance(pad_value, bool):
        raise TypeError(f'pad_value has to be a number, got {pad_value=}')
    if not math.isfinite(pad_value):
        raise ValueError(f'pad_value has to be finite, got {pad_value=}')


def find_sizes(image_BCHW: Tensor, pad_value: float, smallest: int) -> list[tuple[int, int]] | None:
    """Find height and width of each image in a batch that is padded at the bottom and the right.

    Args:
        image_BCHW: The batch.
        pad_value: Value of padding in all channels.
        smallest: Rows and columns that stay, even if they are padding.

    Returns:
        A size for each image; None if all of them fill the batch. An image that is nothing but
        padding fills it.
    """
    image_BCHW = image_BCHW.detach()
    edges = (image_BCHW[:, :, -1], image_BCHW[..., -1])
    if not any((edge == pad_value).flatten(1).all(dim=1).any() for edge in edges):
        return None
    sides = [_find_ends(image_BCHW, axis, pad_value, smallest) for axis in (2, 3)]
    sizes = [tuple(size) for size in torch.stack(sides, dim=1).tolist()]
    return None if set(sizes) == {tuple(image_BCHW.shape[2:])} else sizes


def _find_ends(image_BCHW: Tensor, axis: int, pad_value: float, smallest: int) -> Tensor:
    """Count the rows or columns of each image up to the last one that is not padding.

    Args:
        image_BCHW: The batch.
        axis: 2 to count rows, 3 to count columns.
        pad_value: Value of padding in all channels.
        smallest: Least result, but for images without any such line: they have all lines.
    """
    count = start = image_BCHW.shape[axis]
    ends_B = torch.zeros(len(image_BCHW), dtype=torch.long, device=image_BCHW.device)
    length = SHORT
    while start and not ends_B.all():
        stop, start = start, max(start - length, 0)
        band = image_BCHW.narrow(axis, start, stop - start)
        # Least and greatest value, not a comparison of each pixel: that would be a copy. Both are
        # NaN if a pixel is, and NaN is not padding.
        lowest_BL, highest_BL = (
            extreme(band, dim=(1, 5 - axis)) for extreme in (torch.amin, torch.amax)
        )
        is_image_BL = (lowest_BL != pad_value) | (highest_BL != pad_value)
        numbers_L = torch.arange(start + 1, stop + 1, device=image_BCHW.device)
        ends_B = torch.maximum(ends_B, (is_image_BL * numbers_L).amax(dim=1))
        length *= 2
    return torch.where(ends_B == 0, count, ends_B.clamp(min=smallest))


def group_by_size(sizes: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """Find the images of each size, in the order in which the sizes occur."""
    members = {}
    for index, size in enumerate(sizes):
        members.setdefault(size, []).append(index)
    return members


def run_size_by_size(
    run: Callable[[Tensor], Sequence[Tensor]],
    image_BCHW: Tensor,
    sizes: Sequence[tuple[int, int]],
    strides: Sequence[int],
) -> tuple[Tensor, ...]:
    """Run images without their padding and put their maps into maps of the batch's size.

    Args:
        run: From images of one size to their maps, one for each stride.
        image_BCHW: The batch.
        sizes: Height and width of each image.
        strides: Strides of the maps.

    Returns:
        A map for each stride, zero where an image is not.
    """
    outputs = None
    for (height, width), indices in group_by_size(sizes).items():
        maps = run(image_BCHW[indices, :, :height, :width])
        indices_B = torch.tensor(indices, device=image_BCHW.device)
        if outputs is None:
            outputs = [_zeros(image_BCHW, *pair) for pair in zip(maps, strides, strict=True)]
        for output, part in zip(outputs, maps, strict=True):
            rows, columns = part.shape[2:]
            output[:, :, :rows, :columns].index_copy_(0, indices_B, part)
    return tuple(outputs)


def _zeros(image_BCHW: Tensor, part: Tensor, stride: int) -> Tensor:
    """Make room for the maps of a batch, of the kind and in the order of those of a part."""
    batch, _, *sides = image_BCHW.shape
    height, width = (-(-side // stride) for side in sides)
    if part.is_contiguous():
        return part.new_zeros(batch, part.shape[1], height, width)
    return part.new_zeros(batch, height, width, part.shape[1]).permute(0, 3, 1, 2)
