"""Figures of Shapes and the pixels that they cover, in integers alone.

Lengths are in units of 1/64 pixel. Coverage is counted on 4 x 4 points a pixel, so that edges
look smooth; a pixel belongs to a figure that covers at least half of it.
"""

from dataclasses import dataclass

import numpy as np

UNITS = 64
POINTS = 4
FULL = POINTS * POINTS

CLASSES = ('circle', 'square', 'triangle', 'star', 'ring', 'cross')

# Outer and inner radius, and corners, in thousandths of a figure's radius: the numbers are chosen
# so that figures of one radius look about equally large.
DISCS = dict(circle=(880, 0), ring=(960, 520))
POLYGONS = dict(
    square=((-740, -740), (740, -740), (740, 740), (-740, 740)),
    triangle=((0, -1130), (979, 565), (-979, 565)),
    star=(
        (0, -1150), (259, -356), (1094, -355), (418, 136), (676, 930),
        (0, 440), (-676, 930), (-418, 136), (-1094, -355), (-259, -356),
    ),
    cross=(
        (-280, -1060), (280, -1060), (280, -280), (1060, -280), (1060, 280), (280, 280),
        (280, 1060), (-280, 1060), (-280, 280), (-1060, 280), (-1060, -280), (-280, -280),
    ),
)  # fmt: skip

ANGLES = 256


@dataclass
class CoverageMask:
    """Coverage of each pixel by a figure, from 0 to ``FULL``, and the place of the figure."""

    coverage_HW: np.ndarray
    top: int
    left: int

    def overlap(self, shape: tuple[int, int]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Slices in which the mask meets a canvas: of the canvas, and of the mask."""
        of_canvas, of_mask = [], []
        starts = (self.top, self.left)
        for start, length, size in zip(starts, self.coverage_HW.shape, shape, strict=True):
            low = min(max(start, 0), size)
            high = min(max(start + length, low), size)
            of_canvas.append(slice(low, high))
            of_mask.append(slice(low - start, high - start))
        return tuple(of_canvas), tuple(of_mask)


def rotation(angle: int) -> tuple[int, int, int]:
    """Cosine, sine and their common divisor; ``ANGLES`` steps go around the circle.

    They come from Pythagorean triples: a rotation in rational numbers is exact, where a cosine
    may be rounded one way here and another way there.
    """
    side = ANGLES // 4
    quarters, step = divmod(angle % ANGLES, side)
    cosine, sine, divisor = side**2 - step**2, 2 * side * step, side**2 + step**2
    for _ in range(quarters):
        cosine, sine = -sine, cosine
    return cosine, sine, divisor


def rasterize_figure(name: str, centre: tuple[int, int], radius: int, angle: int) -> CoverageMask:
    """Cover pixels with a figure of ``CLASSES``, its centre given as x, y."""
    if name in DISCS:
        return _rasterize_disc(centre, *(radius * reach // 1000 for reach in DISCS[name]))
    return rasterize_polygon(place_polygon(POLYGONS[name], centre, radius, angle))


def place_polygon(
    corners: tuple[tuple[int, int], ...], centre: tuple[int, int], radius: int, angle: int
) -> list[tuple[int, int]]:
    """Turn, scale and move corners that are given in thousandths of a radius."""
    cosine, sine, divisor = rotation(angle)
    divisor *= 1000
    return [
        (
            centre[0] + radius * (x * cosine - y * sine) // divisor,
            centre[1] + radius * (x * sine + y * cosine) // divisor,
        )
        for x, y in corners
    ]


def rasterize_polygon(corners: list[tuple[int, int]]) -> CoverageMask:
    """Cover pixels with the inside of a closed line (even-odd rule)."""
    columns, rows = zip(*corners, strict=True)
    (top, ys), (left, xs) = (
        _sample_points(min(rows), max(rows)),
        _sample_points(min(columns), max(columns)),
    )
    inside = np.zeros((len(ys), len(xs)), bool)
    for start, end in zip(corners, corners[1:] + corners[:1], strict=True):
        (x0, y0), (x1, y1) = sorted((start, end), key=lambda corner: corner[1])
        first, last = np.searchsorted(ys, (y0, y1))
        if first < last:
            crossings = x0 + (ys[first:last] - y0) * (x1 - x0) // (y1 - y0)
            inside[first:last] ^= xs > crossings[:, None]
    return CoverageMask(_count_covered(inside), top, left)


def _rasterize_disc(centre: tuple[int, int], outer: int, inner: int) -> CoverageMask:
    left, xs = _sample_points(centre[0] - outer, centre[0] + outer)
    top, ys = _sample_points(centre[1] - outer, centre[1] + outer)
    distances = (ys - centre[1])[:, None] ** 2 + (xs - centre[0]) ** 2
    return CoverageMask(_count_covered((distances < outer**2) & (distances >= inner**2)), top, left)


def _sample_points(low: int, high: int) -> tuple[int, np.ndarray]:
    """The first pixel that meets a range of units, and the points of all pixels that do."""
    first, last = low // UNITS, high // UNITS + 1
    points = np.arange(first * POINTS, last * POINTS, dtype=np.int64)
    return first, (2 * points + 1) * UNITS // (2 * POINTS)


def _count_covered(inside: np.ndarray) -> np.ndarray:
    height, width = inside.shape
    columns = inside.reshape(height, width // POINTS, POINTS).sum(axis=2, dtype=np.int32)
    return columns.reshape(height // POINTS, POINTS, -1).sum(axis=1, dtype=np.int32)
