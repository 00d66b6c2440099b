"""How layers cut their map into windows, and where on the map the cells of a window are."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layers.windows import merge_windows, missing_cells, split_windows

HwShape = tuple[int, int]


class Windows(NamedTuple):
    """How a layer cuts its map."""

    hw_shape: HwShape
    side: int
    shift: int

    def split(self, x_BLC: Tensor) -> Tensor:
        """Tokens in groups, ``(images x windows, side ** 2, C)``."""
        return split_windows(x_BLC, *self).flatten(0, 2)

    def merge(self, mixed_BLC: Tensor) -> Tensor:
        """Groups put together to a map again."""
        rows, columns = (-(-length // self.side) for length in self.hw_shape)
        windows = mixed_BLC.unflatten(0, (-1, rows, columns))
        return merge_windows(windows, *self)

    def cells(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cell and region of each place in each window; both ``(windows, side ** 2)``.

        The shift brings cells of two sides of the map together: each side is a region.
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
