"""Build a scene step by step: background, sticks, figures, camera."""

import numpy as np

from .figures import (
    ANGLES,
    CLASSES,
    UNITS,
    CoverageMask,
    place_polygon,
    rasterize_figure,
    rasterize_polygon,
)
from .levels import Level
from .occlusion import Occlusion
from .random_integers import RandomIntegers
from .rendering import HUES, apply_light, blend, cast_shadow, hsv_to_rgb, project, texture

MIN_FIGURES, MAX_FIGURES = 2, 6
PLACEMENT_ATTEMPTS = 8


class SceneBuilder:
    """A scene in the making.

    Args:
        rng: Source of all that is random; the order of its calls makes the scene.
        shape: Height and width in pixels. Lengths follow the shorter one.
        level: Difficulty.

    Attributes:
        image: Red, green and blue, as integers.
        occlusion: Which figure is seen in each pixel.
        labels: Index into ``CLASSES`` of each figure.
    """

    def __init__(self, rng: RandomIntegers, shape: tuple[int, int], level: Level):
        self.rng = rng
        self.level = level
        self.ys, self.xs = (UNITS * np.arange(side, dtype=np.int64) for side in shape)
        self.height, self.width = (UNITS * side for side in shape)
        self.extent = min(self.height, self.width)
        self.light = rng.integer(0, ANGLES - 1)
        self.hues = self._hues()
        self.image = self._background()
        self.occlusion = Occlusion(shape)
        self.labels: list[int] = []

    def build(self) -> None:
        """Add all that lies on the background, and take the picture."""
        self._add_sticks(self.level.sticks_below)
        for _ in range(self.rng.integer(MIN_FIGURES, MAX_FIGURES)):
            self._add_figure()
        self._add_sticks(self.level.sticks_above)
        self._apply_camera()

    def _hues(self) -> list[int]:
        """Choose a hue for the background and each figure, evenly around the wheel."""
        count = MAX_FIGURES + 1
        start = self.rng.integer(0, HUES - 1)
        return [start + place * HUES // count for place in self.rng.permutation(count)]

    def _background(self) -> np.ndarray:
        rng = self.rng
        value = rng.integer(*self.level.background)
        near, far = (
            hsv_to_rgb(self.hues[0] + rng.integer(0, 96), rng.integer(30, 90), value + change)
            for change in (rng.integer(0, 30), -rng.integer(0, 30))
        )
        share = _rescale(project(rng.integer(0, ANGLES - 1), self.ys, self.xs), 256)
        image = near + ((far - near) * share[..., None] >> 8)
        return self._add_texture(image, self.ys, self.xs, self.extent // 6)

    def _add_texture(
        self, image: np.ndarray, ys: np.ndarray, xs: np.ndarray, period: int
    ) -> np.ndarray:
        if not self.level.texture:
            return image
        pattern = texture(self.rng, ys, xs, period)
        strength = self.rng.integer(self.level.texture // 3, self.level.texture)
        return apply_light(image, 256 + (pattern * strength >> 7))

    def _add_figure(self) -> None:
        rng, extent = self.rng, self.extent
        for _ in range(PLACEMENT_ATTEMPTS):
            label = rng.integer(0, len(CLASSES) - 1)
            radius = rng.integer(*(extent * part // 64 for part in self.level.radii))
            centre = tuple(rng.integer(radius, side - radius) for side in (self.width, self.height))
            mask = rasterize_figure(CLASSES[label], centre, radius, rng.integer(0, ANGLES - 1))
            if self.occlusion.leaves_enough(mask):
                self.labels.append(label)
                self.occlusion.add_figure(mask)
                self._render_figure(mask, centre, radius, self.hues[len(self.labels)])
                return

    def _render_figure(
        self, mask: CoverageMask, centre: tuple[int, int], radius: int, hue: int
    ) -> None:
        rng = self.rng
        length = max(radius // (6 * UNITS), 1)
        cast_shadow(self.image, mask, self.light + ANGLES // 2, length, softness=length, depth=110)
        height, width = mask.coverage_HW.shape
        ys = UNITS * np.arange(mask.top, mask.top + height, dtype=np.int64) - centre[1]
        xs = UNITS * np.arange(mask.left, mask.left + width, dtype=np.int64) - centre[0]
        shade = 256 + rng.integer(20, 70) * project(self.light, ys, xs) // radius
        rgb = apply_light(
            hsv_to_rgb(hue, rng.integer(80, 180), rng.integer(*self.level.figures)), shade
        )
        blend(self.image, mask, self._add_texture(rgb, ys, xs, radius * 2 // 3))

    def _add_sticks(self, count: int) -> None:
        """Add thin sticks, which are no figures and hide them like background."""
        rng, extent = self.rng, self.extent
        for _ in range(count):
            centre = rng.integer(0, self.width), rng.integer(0, self.height)
            radius, half = rng.integer(extent // 10, extent // 3), rng.integer(20, 60)
            corners = ((-1000, -half), (1000, -half), (1000, half), (-1000, half))
            mask = rasterize_polygon(
                place_polygon(corners, centre, radius, rng.integer(0, ANGLES - 1))
            )
            rgb = hsv_to_rgb(rng.integer(0, HUES - 1), rng.integer(0, 255), rng.integer(30, 255))
            if self.occlusion.leaves_enough(mask):
                self.occlusion.add_background(mask)
                blend(self.image, mask, np.broadcast_to(rgb, (*mask.coverage_HW.shape, 3)))

    def _apply_camera(self) -> None:
        """Let the light fall off across the scene, and add the camera's noise."""
        distances = project(self.light + ANGLES // 2, self.ys, self.xs)
        self.image = apply_light(self.image, 256 - _rescale(distances, self.rng.integer(0, 80)))
        reach = self.level.noise
        if reach:
            noise = self.rng.array(self.image.shape, 2 * reach + 1) - reach
            self.image = np.clip(self.image + noise, 0, 255)


def _rescale(values: np.ndarray, height: int) -> np.ndarray:
    """Stretch values to go from 0 to ``height``."""
    return (values - values.min()) * height // (values.max() - values.min())
