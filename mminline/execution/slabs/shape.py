"""Grids that are cut into slabs of rows, one for each process."""

import math
from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

Rows = tuple[int, int]  # first row, and the one behind the last


class SlabShape(tuple):
    """Height and width of the own slab of a grid: an ``hw_shape`` that knows the other slabs.

    It travels where ``hw_shape`` does, so a block that is computed once more in the backward pass
    has it too. The shape of a window or a band is a plain tuple: nobody else is asked.

    Args:
        edges: First row of each slab, and the number of rows of the whole grid.
        width: Cells of a row.
        group: Processes that share the grid, in the order of their slabs from top to bottom.
    """

    def __new__(cls, edges: Sequence[int], width: int, group: dist.ProcessGroup) -> 'SlabShape':
        rank = dist.get_rank(group)
        shape = super().__new__(cls, (edges[rank + 1] - edges[rank], width))
        shape.edges, shape.group, shape.rank = tuple(edges), group, rank
        return shape

    @property
    def whole(self) -> tuple[int, int]:
        """Height and width of the whole grid."""
        return self.edges[-1], self[1]

    @property
    def rows(self) -> list[Rows]:
        """Rows of each process."""
        return list(zip(self.edges[:-1], self.edges[1:], strict=True))

    @property
    def top(self) -> int:
        """First row of the own slab."""
        return self.edges[self.rank]

    @property
    def share(self) -> float:
        """Own share of the rows."""
        return self[0] / self.edges[-1]

    def widened(self, count: int) -> list[Rows]:
        """Rows of each process, and as many more on both sides where there are any."""
        height = self.edges[-1]
        return [(max(top - count, 0), min(bottom + count, height)) for top, bottom in self.rows]

    def at_stride(self, stride: int) -> 'SlabShape':
        """Slabs of a map with one cell for ``stride`` x ``stride`` cells of this grid."""
        edges = [-(-edge // stride) for edge in self.edges]
        return SlabShape(edges, -(-self[1] // stride), self.group)

    def cropped(self, height: int, width: int) -> 'SlabShape':
        """Slabs of the upper left part of this grid."""
        return SlabShape([min(edge, height) for edge in self.edges], width, self.group)


def whole_shape(hw_shape: tuple[int, int]) -> tuple[int, int]:
    """Height and width of a grid, of all its slabs if it is cut."""
    return hw_shape.whole if isinstance(hw_shape, SlabShape) else hw_shape


def whole_tokens(x_BLC: Tensor, hw_shape: tuple[int, int]) -> int:
    """Count the tokens of all slabs."""
    return math.prod(hw_shape.whole) if isinstance(hw_shape, SlabShape) else x_BLC.shape[1]


def even_edges(height: int, count: int, multiple: int = 32) -> list[int]:
    """Edges of slabs of nearly equal height, all but the last multiples.

    Args:
        height: Rows of the whole image.
        count: How many slabs.
        multiple: What the heights have to be multiples of; the last slab has the rest.
    """
    units = -(-height // multiple)
    if not 1 <= count <= units:
        raise ValueError(
            f'an image of {height} rows has at most {units} slabs of {multiple} rows, got {count=}'
        )
    return [min(index * units // count * multiple, height) for index in range(count + 1)]
