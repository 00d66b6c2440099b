"""Pyramid pooling, which looks at the whole map, beside a head that runs in tiles."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..replaced import replaced
from .errors import CannotCutError
from .tiles import Maps, Tile


class WholePooling:
    """Pooled branches of a head, computed once from the whole map and resized for each tile.

    PSPNet and UperNet keep them as ``psp_modules``: branches that pool a map to a few cells and
    convolve these, resized to the size of the map.

    Args:
        head: Decode head.
        maps: Maps of the whole image.
    """

    def __init__(self, head: nn.Module, maps: Maps) -> None:
        self.module = getattr(head, 'psp_modules', None)
        self.maps = maps
        self._pooled = {}

    @contextlib.contextmanager
    def on_tile(self, tile: Tile, slices: Sequence[Tensor]) -> Iterator[None]:
        """Let the head see the branches of the whole map, cut like the slices it is called with."""
        if self.module is None:
            yield
            return

        def forward(x: Tensor) -> list[Tensor]:
            index = next((i for i, each in enumerate(slices) if each is x), None)
            if index is None:
                raise CannotCutError(
                    'pyramid pooling has to look at a map of the backbone, and looks at what '
                    'other layers make of one'
                )
            return self._branches(index, tile)

        with replaced(self.module, 'forward', forward):
            yield

    def _branches(self, index: int, tile: Tile) -> list[Tensor]:
        stride = self.maps.strides[index]
        if index not in self._pooled:
            whole = self.maps.whole(index)
            self._pooled[index] = [branch(whole) for branch in self.module]
        sides = [side // stride for side in self.maps.shape]
        cells = [tile.rows.computed(stride), tile.columns.computed(stride)]
        branches = []
        for pooled_BCHW in self._pooled[index]:
            rows, columns = (
                self._weights(pooled_BCHW.shape[2 + axis], sides[axis], pooled_BCHW)[cells[axis]]
                for axis in (0, 1)
            )
            branches.append(rows @ pooled_BCHW @ columns.T)
        return branches

    def _weights(self, cells: int, side: int, like: Tensor) -> Tensor:
        """Weights of bilinear resizing from a few cells to a side, (side, cells)."""
        identity = torch.eye(cells, dtype=like.dtype, device=like.device)[None, None]
        align_corners = getattr(self.module, 'align_corners', False)
        return F.interpolate(identity, (side, cells), mode='bilinear', align_corners=align_corners)[
            0, 0
        ]
