"""Geometry: tiles of an image, the lines around them that they look at, and slices of maps.

Sides of the padded image and edges of tiles are multiples of ``UNIT``, so an edge falls between
two cells of every map up to that stride, and ratios of map sizes are those of the whole image.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .team import Team

UNIT = 32


@dataclass(frozen=True)
class Span:
    """Part of a side of the image, in pixels.

    Args:
        start: First line of which the result is wanted.
        stop: Line behind the last one.
        first: First line that is computed, for the sake of its neighbours.
        last: Line behind the last one that is computed.
    """

    start: int
    stop: int
    first: int
    last: int

    def computed(self, stride: int) -> slice:
        """Cells of a map of the whole image that are computed."""
        return slice(self.first // stride, self.last // stride)

    def wanted(self, stride: int) -> slice:
        """Cells whose result is wanted, in a map of the computed lines."""
        return slice((self.start - self.first) // stride, (self.stop - self.first) // stride)


@dataclass(frozen=True)
class Tile:
    """Rows and columns of an image."""

    rows: Span
    columns: Span

    @property
    def computed_shape(self) -> tuple[int, int]:
        """Height and width of what is computed."""
        return self.rows.last - self.rows.first, self.columns.last - self.columns.first

    def crop(self, map_BCHW: Tensor, stride: int) -> Tensor:
        """Leave the wanted cells of a map of the computed ones."""
        return map_BCHW[..., self.rows.wanted(stride), self.columns.wanted(stride)]


def round_up(number: int, unit: int = UNIT) -> int:
    """Round up to a multiple."""
    return -(-number // unit) * unit


def split_side(
    side: int, length: int, halo: int, part: tuple[int, int] | None = None
) -> list[Span]:
    """Split a side into spans of nearly equal length, at most ``length`` rounded up to units.

    Args:
        side: Lines of the image.
        length: How many a span may have.
        halo: Lines around a span that are computed too.
        part: First line of a part that is split alone, and the one behind its last.
    """
    top, bottom = part or (0, side)
    units = (bottom - top) // UNIT
    count = -(-(bottom - top) // round_up(length))
    edges = [top + UNIT * (index * units // count) for index in range(count + 1)]
    return [
        Span(start, stop, max(start - halo, 0), min(stop + halo, side))
        for start, stop in zip(edges[:-1], edges[1:], strict=True)
    ]


def split_image(
    shape: tuple[int, int],
    tile_shape: tuple[int, int],
    halo: int,
    rows: tuple[int, int] | None = None,
) -> Iterator[list[Tile]]:
    """Split an image, or some of its rows, into tiles; rows of tiles come from top to bottom."""
    columns = split_side(shape[1], tile_shape[1], halo)
    for span in split_side(shape[0], tile_shape[0], halo, rows):
        yield [Tile(span, each) for each in columns]


class Maps:
    """Maps of a whole image, without the cells that are padding alone.

    Those are zero. They are added to the slices, so that no map is copied.

    Args:
        maps: Maps of the image from fine to coarse.
        shape: Height and width of the padded image.
        strides: Stride of each map.
        memory_format: Of the slices, which is that of the maps in the ordinary way: convolutions
            round differently in others.
    """

    def __init__(
        self,
        maps: Sequence[Tensor],
        shape: tuple[int, int],
        strides: Sequence[int],
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.maps = tuple(maps)
        self.shape = shape
        self.strides = tuple(strides)
        self.memory_format = memory_format
        # Of the image whose forms of convolutions count; maps for trials are of smaller ones.
        self.image_shape = shape
        # Rows to predict; other processes may have the rest, see ``shared.SlabMaps``.
        self.rows = (0, shape[0])
        self.team = Team()
        self._first_rows = [0] * len(self.maps)

    def slices(self, tile: Tile) -> list[Tensor]:
        """Cut the computed lines of a tile out of each map."""
        return [self._slice(index, tile) for index in range(len(self.maps))]

    def whole(self, index: int, everywhere: bool = True) -> Tensor:
        """Return a map of the padded size.

        Args:
            index: Number of the map.
            everywhere: Whether all processes get it, or the first one only.
        """
        height, width = self.shape
        whole = Tile(Span(0, height, 0, height), Span(0, width, 0, width))
        return self._slice(index, whole)

    def _slice(self, index: int, tile: Tile) -> Tensor:
        stride = self.strides[index]
        rows, columns = tile.rows.computed(stride), tile.columns.computed(stride)
        first = self._first_rows[index]
        part = self.maps[index][:, :, rows.start - first : rows.stop - first, columns]
        missing = (
            rows.stop - rows.start - part.shape[2],
            columns.stop - columns.start - part.shape[3],
        )
        part = F.pad(part, (0, missing[1], 0, missing[0])) if any(missing) else part
        return part.contiguous(memory_format=self.memory_format)
