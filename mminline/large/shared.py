"""Whole images that several processes share: maps in slabs of rows, one class map in the end."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ..execution.slabs import SlabShape, move_map_rows, named_errors
from .team import SharedTeam
from .tiles import Maps

# Class maps are sent in pieces of this size.
PIECE_BYTES = 32 << 20


class SlabMaps(Maps):
    """Own rows of the maps of an image, and as many around them as ``fetch_halo`` fetches.

    Args:
        maps: Own rows of the maps, from fine to coarse.
        shape: Height and width of the whole padded image.
        strides: Stride of each map.
        slab: Own rows of the image without padding.
        memory_format: Of the slices.
    """

    def __init__(
        self,
        maps: Sequence[Tensor],
        shape: tuple[int, int],
        strides: Sequence[int],
        slab: SlabShape,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__(maps, shape, strides, memory_format)
        self.slab = slab
        self.team = SharedTeam(slab.group)
        self._grids = [slab.at_stride(stride) for stride in self.strides]
        self._first_rows = [grid.top for grid in self._grids]
        is_last = slab.rank == len(slab.rows) - 1
        self.rows = (slab.top, shape[0] if is_last else slab.top + slab[0])

    def widen(self, halo: int) -> None:
        """Fetch rows around the own ones, ``halo`` pixels on both sides."""
        for index, (grid, stride) in enumerate(zip(self._grids, self.strides, strict=True)):
            rows = grid.widened(halo // stride)
            widened = self._gather(index, rows)
            self.maps = (*self.maps[:index], widened, *self.maps[index + 1 :])
            self._first_rows[index] = rows[grid.rank][0]

    def whole(self, index: int, everywhere: bool = True) -> Tensor:
        """Return a map of the padded size, with the rows of all processes, or an empty one."""
        stride = self.strides[index]
        everything = (0, self._grids[index].whole[0])
        others = everything if everywhere else (0, 0)
        map_BCHW = self._gather(index, [everything] + [others] * (len(self.slab.rows) - 1))
        if not map_BCHW.shape[2]:
            return map_BCHW
        missing = [
            side // stride - cells
            for side, cells in zip(self.shape, map_BCHW.shape[2:], strict=True)
        ]
        padded_BCHW = F.pad(map_BCHW, (0, missing[1], 0, missing[0]))
        return padded_BCHW.contiguous(memory_format=self.memory_format)

    def _gather(self, index: int, rows: Sequence[tuple[int, int]]) -> Tensor:
        """Give each process the rows of a map that it wants."""
        grid = self._grids[index]
        first = grid.top - self._first_rows[index]
        return move_map_rows(self.maps[index][:, :, first : first + grid[0]], grid, rows)


def fetch_halo(maps: Maps, halo: int) -> SlabShape | None:
    """Fetch what neck and head look at around the own rows; None if the image is not shared."""
    if not isinstance(maps, SlabMaps):
        return None
    maps.widen(halo)
    return maps.slab


def bring_together(
    bands: Iterator[np.ndarray], slab: SlabShape, shape: tuple[int, int], dtype: np.dtype
) -> Iterator[np.ndarray] | None:
    """Send the bands of all processes to the first one, where they come from top to bottom.

    Args:
        bands: Own rows of the class map.
        slab: Own rows of the image without padding.
        shape: Height and width of the class map.
        dtype: Its type.

    Returns:
        None in the other processes, when all is sent.
    """
    edges = [*slab.edges[:-1], shape[0]]
    if slab.rank == 0:
        return _receive(bands, edges, slab.group, shape[1], dtype)
    own_HW = np.concatenate(list(bands))
    for rows in _pieces(len(own_HW), own_HW[0].nbytes):
        piece = torch.from_numpy(own_HW[rows].view(np.uint8))
        with named_errors(slab.group):
            dist.send(piece, group=slab.group, group_dst=0)
    return None


def _receive(
    bands: Iterator[np.ndarray],
    edges: Sequence[int],
    group: dist.ProcessGroup,
    width: int,
    dtype: np.dtype,
) -> Iterator[np.ndarray]:
    yield from bands
    row_bytes = width * dtype.itemsize
    for other in range(1, len(edges) - 1):
        for rows in _pieces(edges[other + 1] - edges[other], row_bytes):
            piece = torch.empty(rows.stop - rows.start, row_bytes, dtype=torch.uint8)
            with named_errors(group):
                dist.recv(piece, group=group, group_src=other)
            yield piece.numpy().view(dtype)


def _pieces(count: int, row_bytes: int) -> Iterator[slice]:
    """Split rows into pieces, alike for those who send and who receive."""
    step = max(PIECE_BYTES // row_bytes, 1)
    for top in range(0, count, step):
        yield slice(top, min(top + step, count))
