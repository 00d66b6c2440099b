"""Pad a grid of tokens, shift it, split it into square windows, and back."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .exporting import is_open, open_shift, take_rolled


def missing_cells(side: int, multiple: int) -> int:
    """Cells to append to a side to make it a multiple.

    Written so that a compiler with symbolic sizes sees the padded side as a plain product; a
    remainder would grow from stage to stage.
    """
    return (side + multiple - 1) // multiple * multiple - side


def window_shift(hw_shape: tuple[int, int], window: int, shifted: bool) -> int | Tensor:
    """Cells by which a block rolls its grid: half a window, or none where that has no use."""
    if shifted and is_open(hw_shape):
        return open_shift(hw_shape, window)
    return window // 2 if shifted and min(hw_shape) > window else 0


def split_windows(
    x_BLC: Tensor, hw_shape: tuple[int, int], window: int, shift: int | Tensor
) -> Tensor:
    """Cut a grid into windows, row by row.

    Zeros are appended at bottom and right until both sides are multiples of the window.

    Args:
        x_BLC: Tokens of the grid.
        hw_shape: Height and width of the grid.
        window: Side of a window.
        shift: Cells by which the grid is rolled up and left before it is cut.

    Returns:
        Windows, ``(B, rows, columns, window ** 2, C)``.
    """
    height, width = hw_shape
    x_BHWC = x_BLC.unflatten(1, hw_shape)
    bottom, right = missing_cells(height, window), missing_cells(width, window)
    # Compiled, a branch would double the number of programs; padding by nothing does not.
    if torch.compiler.is_compiling() or bottom or right:
        x_BHWC = F.pad(x_BHWC, (0, 0, 0, right, 0, bottom))
    if isinstance(shift, Tensor):
        x_BHWC = take_rolled(x_BHWC, -shift, x_BHWC.shape[1:3])
    elif shift:
        x_BHWC = x_BHWC.roll((-shift, -shift), dims=(1, 2))
    cells = x_BHWC.unflatten(2, (-1, window)).unflatten(1, (-1, window))
    return cells.transpose(2, 3).flatten(3, 4)


def merge_windows(
    windows: Tensor, hw_shape: tuple[int, int], window: int, shift: int | Tensor
) -> Tensor:
    """Undo ``split_windows``: put windows together, roll back, cut off the padding."""
    height, width = hw_shape
    cells = windows.unflatten(3, (window, window)).transpose(2, 3)
    x_BHWC = cells.flatten(3, 4).flatten(1, 2)
    if is_open(hw_shape):
        return take_rolled(x_BHWC, shift, hw_shape).flatten(1, 2)
    if shift:
        x_BHWC = x_BHWC.roll((shift, shift), dims=(1, 2))
    return x_BHWC[:, :height, :width].flatten(1, 2)
