"""3x3 convolutions on a CPU by Winograd's algorithm, made of matrix products.

A tile of 4 x 4 outputs depends on 6 x 6 inputs. Both sides of the convolution are polynomials,
evaluated at six points along each axis; multiplying values at 36 points takes the place of
multiplying 16 outputs by 9 weights, a quarter of the products (Lavin and Gray, arXiv:1509.09308).
Evaluating is a product by a constant matrix of 36 columns. So all work is done by the matrix
product of the CPU, at its full width, in bands of tiles that stay in the cache.

Shapes: P points, T tiles, I channels in, O channels out.
"""

import itertools
import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import cache
from .threads import MOST_THREADS, count_band_threads, cut_range, map_bands

TILE, KERNEL = 4, 3
WINDOW = TILE + KERNEL - 1
# Small and of different size: rounding is a third of that with 0, 1, -1, 2, -2. The sixth point is
# infinity, where a polynomial is its highest coefficient.
POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)
# The matrix product sums up a row alike in any matrix of at least eight rows, so the result for a
# tile does not depend on the band it is in.
ROWS = 8


def _expand(roots: Sequence[float]) -> list[float]:
    """Coefficients of the polynomial with these roots, the constant first."""
    coefficients = [1.0]
    for root in roots:
        shifted, scaled = [0.0, *coefficients], [*coefficients, 0.0]
        coefficients = [high - root * low for high, low in zip(shifted, scaled, strict=True)]
    return coefficients


def _make_matrices() -> tuple[Tensor, Tensor, Tensor]:
    """Matrices that take a window, a kernel and 36 products, each flattened, to the next form.

    They are those of Toom and Cook's product of polynomials, transposed: of a product to a
    correlation.
    """
    window = torch.zeros(WINDOW, WINDOW, dtype=torch.float64, device='cpu')
    kernel, outputs = window.new_zeros(WINDOW, KERNEL), window.new_zeros(TILE, WINDOW)
    for row, point in enumerate(POINTS):
        others = [other for other in POINTS if other != point]
        window[row, :-1] = window.new_tensor(_expand(others))
        powers = window.new_tensor([point**power for power in range(TILE)])
        kernel[row] = powers[:KERNEL] / math.prod(point - other for other in others)
        outputs[:, row] = powers
    window[-1] = window.new_tensor(_expand(POINTS))
    kernel[-1, -1] = outputs[-1, -1] = 1
    # Rows and columns of a window at once.
    return tuple(torch.kron(matrix, matrix).float() for matrix in (window, kernel, outputs))


FROM_WINDOW, FROM_KERNEL, TO_OUTPUTS = _make_matrices()


def count_tiles(sides: Sequence[int], padding: int) -> int:
    """Number of tiles of the output for a map of so many rows and columns."""
    return math.prod(_count(sides, padding))


def convolve(x_BIHW: Tensor, weight_OI33: Tensor, bias_O: Tensor | None, padding: int) -> Tensor:
    """``F.conv2d`` with a 3x3 kernel in float32, up to rounding, without gradients.

    The result has the memory format of the maps. Channels-last is faster.

    Args:
        x_BIHW: Maps.
        weight_OI33: Kernel.
        bias_O: Bias.
        padding: Zeros around the maps, 0 or 1.
    """
    batch, channels_in, *sides = x_BIHW.shape
    channels_out = len(weight_OI33)
    kernel_9IO = weight_OI33.permute(2, 3, 1, 0).reshape(KERNEL**2, -1)
    kernel_PIO = (FROM_KERNEL @ kernel_9IO).view(-1, channels_in, channels_out)
    is_channels_last = x_BIHW.is_contiguous(memory_format=torch.channels_last)
    out_BOHW = torch.empty(
        (batch, channels_out, *(side + 2 * padding - KERNEL + 1 for side in sides)),
        dtype=x_BIHW.dtype,
        device=x_BIHW.device,
        memory_format=torch.channels_last if is_channels_last else torch.contiguous_format,
    )
    x_BHWI, out_BHWO = x_BIHW.permute(0, 2, 3, 1), out_BOHW.permute(0, 2, 3, 1)
    channels, num_threads = max(channels_in, channels_out), count_band_threads(x_BIHW.device)
    most_tiles = max(cache.band_bytes() // (4 * WINDOW**2 * channels), 4 * ROWS)
    if num_threads == 1:  # each product is shared among all threads of torch
        most_tiles *= min(torch.get_num_threads(), MOST_THREADS)
    bands = _cut((batch, *_count(sides, padding)), most_tiles, num_threads)
    size = WINDOW**2 * channels * max(_round_up(band.num_tiles) for band in bands)
    memory = threading.local()

    def run(band: _Band) -> None:
        if not hasattr(memory, 'buffers'):  # kept for all bands: the system clears new memory
            memory.buffers = x_BIHW.new_empty(size), x_BIHW.new_empty(size)
        one, other = memory.buffers
        # Tiles beyond those of the band are whatever was there, and nobody reads them.
        tiles, rows = slice(band.num_tiles), _round_up(band.num_tiles)
        window_PTI = _view(one, WINDOW**2, rows, channels_in)
        window_PTI[:, tiles].view(WINDOW, WINDOW, *band.shape, -1).copy_(
            band.windows(x_BHWI, padding, other)
        )
        value_PTI = _view(other, WINDOW**2, rows, channels_in)
        torch.mm(FROM_WINDOW, window_PTI.flatten(1), out=value_PTI.flatten(1))
        product_PTO = _view(one, WINDOW**2, rows, channels_out)
        torch.bmm(value_PTI, kernel_PIO, out=product_PTO)
        result_PTO = _view(other, TILE**2, rows, channels_out)
        torch.mm(TO_OUTPUTS, product_PTO.flatten(1), out=result_PTO.flatten(1))
        band.write(result_PTO[:, tiles].view(TILE, TILE, *band.shape, -1), bias_O, out_BHWO)

    map_bands(run, bands, num_threads)
    return out_BOHW


class _Band(NamedTuple):
    """Tiles that are computed together: images, and rows and columns of tiles."""

    images: range
    rows: range
    columns: range

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.images), len(self.rows), len(self.columns)

    @property
    def num_tiles(self) -> int:
        return math.prod(self.shape)

    def windows(self, x_BHWI: Tensor, padding: int, buffer: Tensor) -> Tensor:
        """Inputs of each tile, with zeros around the map: rows, columns, the band, channels."""
        sides = [TILE * len(tiles) + KERNEL - 1 for tiles in (self.rows, self.columns)]
        piece_BHWI = _view(buffer, len(self.images), *sides, x_BHWI.shape[3])
        here, there = [], []
        for axis, (tiles, length) in enumerate(zip(self[1:], sides, strict=True), start=1):
            first = TILE * tiles.start - padding
            start, stop = max(first, 0), min(first + length, x_BHWI.shape[axis])
            piece_BHWI.narrow(axis, 0, start - first).zero_()
            piece_BHWI.narrow(axis, stop - first, first + length - stop).zero_()
            here.append(slice(start - first, stop - first))
            there.append(slice(start, stop))
        images = slice(self.images.start, self.images.stop)
        piece_BHWI[:, *here] = x_BHWI[images, *there]
        windows = piece_BHWI.unfold(1, WINDOW, TILE).unfold(2, WINDOW, TILE)
        return windows.permute(4, 5, 0, 1, 2, 3)

    def write(self, outputs: Tensor, bias_O: Tensor | None, out_BHWO: Tensor) -> None:
        """Write tiles where they belong, as far as they are inside the map."""
        target = out_BHWO[self.images.start : self.images.stop]
        top, left = TILE * self.rows.start, TILE * self.columns.start
        bottom, right = TILE * self.rows.stop, TILE * self.columns.stop
        for row, column in itertools.product(range(TILE), repeat=2):
            cells_BHWO = target[:, top + row : bottom : TILE, left + column : right : TILE]
            height, width = cells_BHWO.shape[1:3]
            found_BHWO = outputs[row, column, :, :height, :width]
            if bias_O is None:
                cells_BHWO.copy_(found_BHWO)
            else:
                torch.add(found_BHWO, bias_O, out=cells_BHWO)


def _cut(grid: tuple[int, int, int], most_tiles: int, num_threads: int) -> list[_Band]:
    """Cut images, rows and columns of tiles into bands of nearly equal sizes."""
    batch, rows, columns = grid
    if rows * columns <= most_tiles:
        images = cut_range(batch, most_tiles // (rows * columns), num_threads)
        return [_Band(part, range(rows), range(columns)) for part in images]
    parts = cut_range(columns, most_tiles, 1)
    pieces = cut_range(rows, most_tiles // len(parts[0]), num_threads)
    return [
        _Band(range(image, image + 1), *piece)
        for image, *piece in itertools.product(range(batch), pieces, parts)
    ]


def _count(sides: Sequence[int], padding: int) -> list[int]:
    """Tiles along each side of a map."""
    return [-(-(side + 2 * padding - KERNEL + 1) // TILE) for side in sides]


def _round_up(tiles: int) -> int:
    return -(-tiles // ROWS) * ROWS


def _view(buffer: Tensor, *shape: int) -> Tensor:
    return buffer[: math.prod(shape)].view(shape)
