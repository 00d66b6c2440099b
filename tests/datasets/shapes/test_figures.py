"""Random integers, figures as masks, and what they hide of each other."""

import numpy as np
import pytest

from mminline.datasets.shapes.figures import (
    ANGLES,
    CLASSES,
    DISCS,
    FULL,
    POLYGONS,
    UNITS,
    CoverageMask,
    place_polygon,
    rasterize_figure,
    rasterize_polygon,
    rotation,
)
from mminline.datasets.shapes.occlusion import Occlusion
from mminline.datasets.shapes.random_integers import RandomIntegers


def test_random_integers_stay_in_range_and_reach_every_value():
    rng = RandomIntegers(3)

    assert {rng.integer(-2, 2) for _ in range(200)} == set(range(-2, 3))
    assert set(rng.array((20, 10), 5).flat) == set(range(5))
    assert sorted(rng.permutation(9)) == list(range(9))


def test_directions_are_exact_and_go_once_around():
    cosines, sines, divisors = np.array([rotation(angle) for angle in range(ANGLES)]).T
    angles = np.arctan2(sines, cosines) % (2 * np.pi)

    assert np.array_equal(cosines**2 + sines**2, divisors**2)
    assert np.all(np.diff(angles) > 0) and angles[0] == 0


@pytest.mark.parametrize('name', CLASSES)
def test_figures_cover_the_area_of_their_outline(name):
    radius = 25 * UNITS
    if name in DISCS:
        outer, inner = DISCS[name]
        expected = np.pi * (outer**2 - inner**2)
    else:
        x, y = np.array(POLYGONS[name]).T
        expected = abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2
    expected *= (radius / UNITS / 1000) ** 2
    for angle in (0, 17, 100):
        mask = rasterize_figure(name, (1000, 1003), radius, angle)
        assert mask.coverage_HW.sum() / FULL == pytest.approx(expected, rel=0.01)


def test_polygons_take_the_points_that_lie_inside():
    # Half-planes tell what is inside a triangle, another way than the crossings of the polygon.
    corners = place_polygon(POLYGONS['triangle'], (700, 640), 500, angle=29)
    mask = rasterize_polygon(corners)
    height, width = mask.coverage_HW.shape
    step = UNITS // 4
    ys, xs = np.mgrid[: 4 * height, : 4 * width] * step + step // 2
    ys, xs = ys + mask.top * UNITS, xs + mask.left * UNITS
    inside = np.ones(ys.shape, bool)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside &= (x1 - x0) * (ys - y0) - (y1 - y0) * (xs - x0) > 0

    counts = inside.reshape(height, 4, width, 4).sum(axis=(1, 3))
    assert counts.max() == FULL
    assert abs(counts - mask.coverage_HW).sum() <= 1


def test_a_mask_over_the_border_meets_only_the_canvas():
    canvas = np.zeros((8, 8), int)
    mask = CoverageMask(np.arange(12).reshape(3, 4), top=-1, left=6)
    of_canvas, of_mask = mask.overlap((8, 8))
    canvas[of_canvas] = mask.coverage_HW[of_mask]

    assert canvas[:2, 6:].tolist() == [[4, 5], [8, 9]]
    assert canvas.sum() == 4 + 5 + 8 + 9
    far = CoverageMask(mask.coverage_HW, top=20, left=-9)
    of_canvas, of_mask = far.overlap((8, 8))
    assert canvas[of_canvas].size == 0 == far.coverage_HW[of_mask].size


def test_a_canvas_may_be_wider_than_high():
    canvas = np.zeros((4, 9), int)
    mask = CoverageMask(np.arange(1, 7).reshape(2, 3), top=3, left=6)
    of_canvas, of_mask = mask.overlap(canvas.shape)
    canvas[of_canvas] = mask.coverage_HW[of_mask]

    assert canvas[3, 6:].tolist() == [1, 2, 3] and canvas.sum() == 6


def test_a_figure_may_lose_a_quarter_to_others_and_no_more():
    occlusion = Occlusion((10, 10))
    occlusion.add_figure(CoverageMask(np.full((10, 10), FULL), 0, 0))
    occlusion.add_background(CoverageMask(np.full((2, 10), FULL // 2), 0, 0))

    assert occlusion.areas.tolist() == [100] and occlusion.visible.tolist() == [80]
    assert occlusion.leaves_enough(CoverageMask(np.full((1, 5), FULL), 5, 0))
    assert not occlusion.leaves_enough(CoverageMask(np.full((1, 6), FULL), 5, 0))
    # What is hidden already cannot be hidden again, and less than half of a pixel does not count.
    assert occlusion.leaves_enough(CoverageMask(np.full((2, 10), FULL), 0, 0))
    assert occlusion.leaves_enough(CoverageMask(np.full((10, 10), FULL // 2 - 1), 0, 0))
