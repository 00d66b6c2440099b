"""Pyramid pooling, which looks at the whole map, beside a head that runs in tiles."""

import contextlib
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from ..replaced import replaced
from .errors import CannotCutError
from .tiles import Maps, Tile


class WholePooling:
    """Pooled branches of a head, computed once from the whole map and cut for each tile.

    PSPNet and UperNet keep them as ``psp_modules``: branches that pool a map to a few cells and
    convolve these, resized to the size of the map.

    Args:
        head: Decode head.
        maps: Maps of the whole image.
    """

    def __init__(self, head: nn.Module, maps: Maps) -> None:
        self.module = getattr(head, 'psp_modules', None)
        self.maps = maps
        self._run_whole = getattr(self.module, 'forward', None)  # before it is replaced
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
            self._resized[index] = self._run_whole(self.maps.whole(index))
        stride = self.maps.strides[index]
        rows, columns = tile.rows.computed(stride), tile.columns.computed(stride)
        return [branch_1CHW[:, :, rows, columns] for branch_1CHW in self._resized[index]]
