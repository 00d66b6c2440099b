"""Backbone on a slab of images that several processes share: padding is that of whole images."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ...execution.slabs import SlabShape, named_errors


def find_whole_sizes(
    image_BCHW: Tensor, slab: SlabShape, pad_value: float, smallest: int
) -> list[tuple[int, int]]:
    """Find height and width of each whole image, as ``padding.find_sizes`` does in one process.

    Args:
        image_BCHW: Own rows of the batch.
        slab: Where they are.
        pad_value: Value of padding in all channels.
        smallest: Rows and columns that stay, even if they are padding.
    """
    image_BCHW = image_BCHW.detach()
    height, width = slab.whole
    is_image_BL = image_BCHW.new_zeros(len(image_BCHW), height + width, dtype=torch.int32)
    for axis, lines in ((2, slice(slab.top, slab.top + slab[0])), (3, slice(height, None))):
        # Least and greatest value, not a comparison of each pixel: that would be a copy.
        lowest, highest = (pick(image_BCHW, dim=(1, 5 - axis)) for pick in (torch.amin, torch.amax))
        is_image_BL[:, lines] = ((lowest != pad_value) | (highest != pad_value)).int()
    with named_errors(slab.group):
        dist.all_reduce(is_image_BL, dist.ReduceOp.MAX, group=slab.group)
    ends = []
    for lines_BL in is_image_BL.split([height, width], dim=1):
        count = lines_BL.shape[1]
        end_B = (lines_BL * torch.arange(1, count + 1, device=lines_BL.device)).amax(dim=1)
        ends.append(torch.where(end_B == 0, count, end_B.clamp(min=smallest)))
    return [tuple(size) for size in torch.stack(ends, dim=1).tolist()]


def run_slab(
    run: Callable[[Tensor, SlabShape], tuple[Tensor, ...]],
    image_BCHW: Tensor,
    slab: SlabShape,
    sizes: Sequence[tuple[int, int]],
    strides: Sequence[int],
) -> tuple[Tensor, ...]:
    """Run images of the same size together, and return the own rows of their maps.

    Args:
        run: From the own rows of images of one size, and their slab, to a map for each stride.
        image_BCHW: Own rows of the batch.
        slab: Where they are.
        sizes: Height and width of each whole image.
        strides: Strides of the maps.

    Returns:
        A map for each stride, zero where an image is not.
    """
    if set(sizes) == {slab.whole}:
        return run(image_BCHW, slab)
    first_row = slab.edges[-2]
    if min(height for height, _ in sizes) <= first_row:
        raise ValueError(
            f'each image of a batch has to reach into the last slab, which begins at row '
            f'{first_row}, got sizes without padding {sizes}: batch images of similar height, or '
            'build the backbone with ignore_padding=False'
        )
    outputs = None
    for size in dict.fromkeys(sizes):
        part = slab.cropped(*size)
        indices_B = torch.tensor(
            [index for index, other in enumerate(sizes) if other == size], device=image_BCHW.device
        )
        maps = run(image_BCHW[:, :, : part[0], : part[1]].index_select(0, indices_B), part)
        if outputs is None:
            outputs = [
                each.new_zeros(len(sizes), each.shape[1], *slab.at_stride(stride))
                for each, stride in zip(maps, strides, strict=True)
            ]
        for output, each in zip(outputs, maps, strict=True):
            output[:, :, : each.shape[2], : each.shape[3]].index_copy_(0, indices_B, each)
    return tuple(outputs)
