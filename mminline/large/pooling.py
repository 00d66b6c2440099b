"""Pyramid pooling, which looks at the whole map, beside a head that runs in tiles."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..execution.score_rows import ScoreRows, from_scores
from ..replaced import replaced
from .errors import CannotCutError
from .tiles import Maps, Tile


class WholePooling:
    """Pooled branches of a head, computed once from the whole map and resized for each tile.

    They have the bits that resizing them for the whole map gives.

    PSPNet and UperNet keep them as ``psp_modules``: branches that pool a map to a few cells and
    convolve these, resized to the size of the map.

    Args:
        head: Decode head.
        maps: Maps of the whole image.
    """

    def __init__(self, head: nn.Module, maps: Maps) -> None:
        self.module = getattr(head, 'psp_modules', None)
        self.maps = maps
        self._resized = {}

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
        if index not in self._resized:
            # The kernels of a tile are chosen by its size, see ``kernels``: this is no tile.
            with torch._C.DisableTorchFunction():
                self._resized[index] = self._resize(self.maps.whole(index))
        stride = self.maps.strides[index]
        cells = tile.rows.computed(stride), tile.columns.computed(stride)
        return [rows.crop(*cells).stack()[None] for rows in self._resized[index]]

    def _resize(self, whole_1CHW: Tensor) -> list[ScoreRows]:
        """Resize the branches row by row, as tiles need them: they are larger than the map."""
        align_corners = getattr(self.module, 'align_corners', False)
        size = tuple(whole_1CHW.shape[2:])
        return [
            from_scores(branch(whole_1CHW)[0]).resize(size, align_corners) for branch in self.module
        ]
