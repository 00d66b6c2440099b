"""Pad a grid of tokens, shift it, split it into square windows, and back."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


def missing_cells(side: int, multiple: int) -> int:
    """Cells to append to a side to make it a multiple.

    Written so that a compiler with symbolic sizes sees the padded side as a plain product; a
    remainder would grow from stage to stage.
    """
    return (side + multiple - 1) // multiple * multiple - side


def pad_to_multiple(x_BHWC: Tensor, multiple: int, always: bool = False) -> Tensor:
    """Append zeros at bottom and right until both sides are multiples.

    Args:
        x_BHWC: Maps, channels last.
        multiple: What the sides have to be multiples of.
        always: Whether to pad by nothing too. That costs a copy; but a graph that is recorded
            for any size can hold no branch on the size.
    """
    bottom, right = (missing_cells(side, multiple) for side in x_BHWC.shape[1:3])
    if always or bottom or right:
        return F.pad(x_BHWC, (0, 0, 0, right, 0, bottom))
    return x_BHWC


def window_shift(hw_shape: tuple[int, int], window: int, shifted: bool) -> int:
    """Cells by which a block rolls its grid: half a window, or none where that has no use."""
    return window // 2 if shifted and min(hw_shape) > window else 0


def split_windows(
    x_BLC: Tensor, hw_shape: tuple[int, int], window: int, shift: int, always_pad: bool = False
) -> Tensor:
    """Cut a grid into windows, row by row.

    Zeros are appended at bottom and right until both sides are multiples of the window.

    Args:
        x_BLC: Tokens of the grid.
        hw_shape: Height and width of the grid.
        window: Side of a window.
        shift: Cells by which the grid is rolled up and left before it is cut.
        always_pad: See ``pad_to_multiple``.

    Returns:
        Windows, ``(B, rows, columns, window ** 2, C)``.
    """
    x_BHWC = pad_to_multiple(x_BLC.unflatten(1, hw_shape), window, always_pad)
    if shift:
        x_BHWC = x_BHWC.roll((-shift, -shift), dims=(1, 2))
    return cut_windows(x_BHWC, window)


def merge_windows(windows: Tensor, hw_shape: tuple[int, int], window: int, shift: int) -> Tensor:
    """Undo ``split_windows``: put windows together, roll back, cut off the padding."""
    height, width = hw_shape
    x_BHWC = join_windows(windows, window)
    if shift:
        x_BHWC = x_BHWC.roll((shift, shift), dims=(1, 2))
    return x_BHWC[:, :height, :width].flatten(1, 2)


def cut_windows(x_BHWC: Tensor, window: int) -> Tensor:
    """Cut a map of whole windows, ``(B, rows, columns, window ** 2, C)``."""
    cells = x_BHWC.unflatten(2, (-1, window)).unflatten(1, (-1, window))
    return cells.transpose(2, 3).flatten(3, 4)


def join_windows(windows: Tensor, window: int) -> Tensor:
    """Put windows together to a map, ``(B, H, W, C)``."""
    cells = windows.unflatten(3, (window, window)).transpose(2, 3)
    return cells.flatten(3, 4).flatten(1, 2)


class Windows(NamedTuple):
    """Cut of a grid into windows, each a group of tokens of its own."""

    hw_shape: tuple[int, int]
    side: int
    shift: int

    def split(self, x_BLC: Tensor, always_pad: bool = False) -> Tensor:
        """Tokens in groups, ``(images x windows, side ** 2, C)``."""
        return split_windows(x_BLC, *self, always_pad).flatten(0, 2)

    def merge(self, mixed_BLC: Tensor) -> Tensor:
        """Groups put together to a map again, as tokens."""
        rows, columns = (-(-length // self.side) for length in self.hw_shape)
        return merge_windows(mixed_BLC.unflatten(0, (-1, rows, columns)), *self)

    def cells(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cell and region of each place in each window; both ``(windows, side ** 2)``.

        A cell is the index of a token, -1 for padding. The shift brings cells of two sides of
        the map together: each side is a region.
        """
        height, width = self.hw_shape
        bottom, right = missing_cells(height, self.side), missing_cells(width, self.side)
        cell_HW = torch.arange(height * width, device=device).view(height, width)
        cell_HW = F.pad(cell_HW, (0, right, 0, bottom), value=-1)
        row_H1 = torch.arange(height + bottom, device=device)[:, None]
        column_1W = torch.arange(width + right, device=device)[None]
        region_HW = 2 * (row_H1 < self.shift) + (column_1W < self.shift)
        maps_1L2 = torch.stack([cell_HW, region_HW], dim=-1).flatten(0, 1)[None]
        windows = split_windows(maps_1L2, tuple(cell_HW.shape), self.side, self.shift)
        return windows.flatten(0, 2).unbind(-1)
