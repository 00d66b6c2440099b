"""Tokens of images of several sizes, in two layouts.

Packed, the tokens of all images lie one behind the other, ``(1, L, C)``, and none of them is
padding. In grids, each image lies in the upper left corner of a grid of one size,
``(B, H, W, C)``, with zeros around it.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Group(NamedTuple):
    """Images of one size: how many, and the height and width of their grids."""

    batch: int
    hw_shape: tuple[int, int]

    @property
    def num_tokens(self) -> int:
        return self.batch * self.hw_shape[0] * self.hw_shape[1]


def pack(parts: Sequence[Tensor]) -> Tensor:
    """Put the tokens of groups, ``(B, L, C)`` each, one behind the other."""
    return torch.cat([part_BLC.flatten(0, 1) for part_BLC in parts])[None]


def unpack(x_1LC: Tensor, groups: Sequence[Group]) -> list[Tensor]:
    """Undo ``pack``, without a copy."""
    # Squeezed, not indexed: the backward of an index makes a tensor of zeros.
    parts = x_1LC.squeeze(0).split([group.num_tokens for group in groups])
    return [
        part_LC.unflatten(0, (group.batch, -1))
        for part_LC, group in zip(parts, groups, strict=True)
    ]


def to_grids(x_1LC: Tensor, groups: Sequence[Group], hw_shape: tuple[int, int]) -> Tensor:
    """Put packed tokens into grids of one size, with zeros around them.

    Args:
        x_1LC: Packed tokens.
        groups: What they belong to.
        hw_shape: Height and width of the grids.
    """
    return _ToGrids.apply(x_1LC, tuple(groups), hw_shape)


def from_grids(x_BHWC: Tensor, groups: Sequence[Group]) -> Tensor:
    """Pack the tokens of images that lie in grids of one size, without those around them."""
    return _FromGrids.apply(x_BHWC, tuple(groups))


def find_covered(
    groups: Sequence[Group], hw_shape: tuple[int, int], device: torch.device
) -> Tensor:
    """Tell which cells of grids of one size images cover, ``(B, H, W)``."""
    shapes = [group.hw_shape for group in groups for _ in range(group.batch)]
    heights_B11, widths_B11 = torch.tensor(shapes, device=device).t()[..., None, None]
    rows_H, columns_W = (torch.arange(side, device=device) for side in hw_shape)
    return (rows_H[:, None] < heights_B11) & (columns_W < widths_B11)


# The blocks of a stage share these, forward and backward. They are no inference tensors, which a
# later call in training could not use.
@functools.lru_cache(maxsize=8)
def mark_covered(
    groups: tuple[Group, ...],
    hw_shape: tuple[int, int],
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """Mark the cells that images cover by 1, ``(B, L, 1)``, and those around them by 0."""
    with torch.inference_mode(False):
        return find_covered(groups, hw_shape, device).flatten(1).unsqueeze(2).to(dtype)


@functools.lru_cache(maxsize=8)
def _number_covered(
    groups: tuple[Group, ...], hw_shape: tuple[int, int], device: torch.device
) -> Tensor:
    """Number the cells that images cover, ``(L,)``, in the order of packed tokens."""
    with torch.inference_mode(False):
        return find_covered(groups, hw_shape, device).flatten().nonzero().squeeze(1)


# The gradient of each is the other. Written out, because the usual operations would make a tensor
# of the full size for each group, forward and backward.
class _ToGrids(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_1LC, groups, hw_shape):
        ctx.groups = groups
        batch = sum(group.batch for group in groups)
        x_BHWC = x_1LC.new_zeros(batch, *hw_shape, x_1LC.shape[2])
        cells_L = _number_covered(groups, hw_shape, x_1LC.device)
        x_BHWC.flatten(0, 2).index_copy_(0, cells_L, x_1LC[0])
        return x_BHWC

    @staticmethod
    def backward(ctx, grad_BHWC):
        return from_grids(grad_BHWC, ctx.groups), None, None


class _FromGrids(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_BHWC, groups):
        ctx.groups, ctx.hw_shape = groups, tuple(x_BHWC.shape[1:3])
        cells_L = _number_covered(groups, ctx.hw_shape, x_BHWC.device)
        return x_BHWC.flatten(0, 2).index_select(0, cells_L)[None]

    @staticmethod
    def backward(ctx, grad_1LC):
        return to_grids(grad_1LC, ctx.groups, ctx.hw_shape), None
