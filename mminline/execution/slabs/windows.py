"""Rows of windows of softmax attention, on a whole grid or on a slab of it."""

import torch.nn.functional as F
from torch import Tensor

from ...layers.windows import (
    cut_windows,
    join_windows,
    merge_windows,
    missing_cells,
    split_windows,
    window_shift,
)
from .exchange import move_rows
from .shape import SlabShape


class WindowRows:
    """Cut of a grid into rows of windows.

    Args:
        hw_shape: Height and width of the grid.
        window: Side of a window.
        shifted: Whether windows are shifted by half their side.
    """

    def __init__(self, hw_shape: tuple[int, int], window: int, shifted: bool) -> None:
        self.hw_shape = hw_shape
        self.window = window
        self.shift = window_shift(hw_shape, window, shifted)

    def split(self, x_BLC: Tensor) -> Tensor:
        """Cut tokens into windows, ``(B, rows, columns, window ** 2, C)``."""
        return split_windows(x_BLC, self.hw_shape, self.window, self.shift)

    def merge(self, windows: Tensor) -> Tensor:
        """Undo ``split``."""
        return merge_windows(windows, self.hw_shape, self.window, self.shift)

    def mark_tokens(self, like: Tensor) -> Tensor:
        """Windows of one image and channel: 1 for tokens, 0 for padding."""
        return self.split(like.new_ones(1, self.hw_shape[0] * self.hw_shape[1], 1))

    def runs(self) -> list[tuple[int, int, bool]]:
        """First row of windows of each run, the one behind its last, and whether it is at the seam.

        A window at the seam holds cells of both ends of a shifted map.
        """
        last = -(-self.hw_shape[0] // self.window)
        return [(0, last - 1, False), (last - 1, last, True)] if self.shift else [(0, last, False)]


class SlabWindowRows(WindowRows):
    """Windows that begin in the own slab: rows are borrowed from the next ones, and given back.

    The two ends of a map that meet in the windows at the seam do not see each other. So each end
    computes its part of them by itself, with zeros in place of the other end.
    """

    def __init__(self, slab: SlabShape, window: int, shifted: bool) -> None:
        super().__init__(slab.whole, window, shifted)
        self.slab = slab
        lines = [self._next_line(edge) for edge in slab.edges]
        self.owned = list(zip(lines[:-1], lines[1:], strict=True))
        self.top, self.bottom = self.owned[slab.rank]
        self.above = window - self.shift if self.shift and self.top == 0 else 0
        rows = self.above + self.bottom - self.top
        # A process without windows has one of padding, so that its parameters have gradients.
        self.below = missing_cells(rows, window) if rows else window

    def _next_line(self, edge: int) -> int:
        """First row of the first window that begins at an edge of slabs or below."""
        height = self.hw_shape[0]
        if edge in (0, height):
            return edge
        return min(edge + missing_cells(edge - self.shift, self.window), height)

    def split(self, x_BLC: Tensor) -> Tensor:
        return self._cut(move_rows(x_BLC, self.slab, self.slab.rows, self.owned))

    def merge(self, windows: Tensor) -> Tensor:
        x_BHWC = join_windows(windows, self.window).roll(self.shift, dims=2)
        rows = slice(self.above, self.above + self.bottom - self.top)
        x_BLC = x_BHWC[:, rows, : self.hw_shape[1]].flatten(1, 2)
        return move_rows(x_BLC, self.slab, self.owned, self.slab.rows)

    def mark_tokens(self, like: Tensor) -> Tensor:
        return self._cut(like.new_ones(1, (self.bottom - self.top) * self.hw_shape[1], 1))

    def runs(self) -> list[tuple[int, int, bool]]:
        count = (self.above + self.bottom - self.top + self.below) // self.window
        padded_height = self.hw_shape[0] + missing_cells(self.hw_shape[0], self.window)
        first = int(self.above > 0)
        reaches_seam = self.bottom + self.below == padded_height + self.shift
        last = count - int(self.shift > 0 and self.top < self.bottom and reaches_seam)
        runs = [(0, first, True), (first, last, False), (last, count, True)]
        return [run for run in runs if run[0] < run[1]]

    def _cut(self, x_BLC: Tensor) -> Tensor:
        """Cut the rows of the own windows."""
        width = self.hw_shape[1]
        x_BHWC = x_BLC.unflatten(1, (self.bottom - self.top, width))
        right = missing_cells(width, self.window)
        x_BHWC = F.pad(x_BHWC, (0, 0, 0, right, self.above, self.below))
        return cut_windows(x_BHWC.roll(-self.shift, dims=2), self.window)


def window_rows(hw_shape: tuple[int, int], window: int, shifted: bool) -> WindowRows:
    """Cut a grid, or the own slab of one, into rows of windows."""
    kind = SlabWindowRows if isinstance(hw_shape, SlabShape) else WindowRows
    return kind(hw_shape, window, shifted)
