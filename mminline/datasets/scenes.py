"""Scenes of Shapes: a few figures on a lit background, drawn from a seed."""

from dataclasses import dataclass

import numpy as np

from .draws import Draws
from .figures import CLASSES, TURNS, UNITS, Stamp, figure, polygon, turned
from .occlusion import Occlusion
from .paint import HUES, along, blend, cast_shadow, colour, lit, texture

SPLITS = ('train', 'val')
SMALLEST_SIZE = 64
FEWEST_FIGURES, MOST_FIGURES = 2, 6
TRIES = 8


@dataclass(frozen=True)
class Level:
    """What makes a scene hard.

    Attributes:
        radii: The smallest and the largest figure, in 1/64 of the scene.
        ground: How bright the background may be, from and to, of 255.
        figures: How bright figures may be.
        texture: How strong patterns may be, of 256.
        noise: How far the camera's noise goes up and down, of 255.
        sticks_below: Sticks that lie about under the figures.
        sticks_above: Sticks that lie over them.
    """

    radii: tuple[int, int] = (5, 16)
    ground: tuple[int, int] = (40, 225)
    figures: tuple[int, int] = (130, 245)
    texture: int = 0
    noise: int = 0
    sticks_below: int = 0
    sticks_above: int = 0


# The plain level is for runs of a few minutes: figures of similar size, always brighter than the
# ground, are learnt in fewer steps than figures that may be darker as well.
LEVELS = dict(
    plain=Level(radii=(7, 13), ground=(40, 95), figures=(200, 250)),
    textured=Level(texture=56),
    cluttered=Level(texture=72, noise=12, sticks_below=8, sticks_above=4),
)


@dataclass
class Scene:
    """A picture and the truth about it.

    Attributes:
        image_HWC: Red, green and blue, uint8.
        instances_HW: Which figure is seen in a pixel, counted from 1; 0 is background; uint8.
        labels: Index into ``CLASSES`` of each figure.
    """

    image_HWC: np.ndarray
    instances_HW: np.ndarray
    labels: tuple[int, ...]

    @property
    def semantic_HW(self) -> np.ndarray:
        """Index into ``SEMANTIC_CLASSES`` of each pixel, uint8."""
        return np.array((0, *(label + 1 for label in self.labels)), np.uint8)[self.instances_HW]


def draw_scene(
    index: int, split: str = 'train', seed: int = 0, size: int = 128, level: str = 'plain'
) -> Scene:
    """Draw one scene, the same for the same arguments however many others are drawn.

    Shape and colour are drawn apart from each other, so only its outline tells a figure's class.
    A figure that would leave less than three quarters of an earlier one in sight is put elsewhere
    or left out: every figure in a picture can be recognised, and is in ``instances_HW``.

    Args:
        index: Number of the scene in its split.
        split: One of ``SPLITS``.
        seed: Scenes of another seed are other scenes.
        size: Height and width in pixels.
        level: One of ``LEVELS``.
    """
    check_scene_settings(size, seed, level)
    if split not in SPLITS:
        raise ValueError(f'split has to be one of {SPLITS}, got split={split!r}')
    if index < 0:
        raise ValueError(f'index has to be at least 0, got index={index}')
    return _Easel(Draws(seed, SPLITS.index(split), index), size, LEVELS[level]).scene()


def check_scene_settings(size: int, seed: int, level: str) -> None:
    """Refuse settings with which no scene can be drawn."""
    if size < SMALLEST_SIZE:
        raise ValueError(f'size has to be at least {SMALLEST_SIZE}, got size={size}')
    if seed < 0:
        raise ValueError(f'seed has to be at least 0, got seed={seed}')
    if level not in LEVELS:
        raise ValueError(f'level has to be one of {tuple(LEVELS)}, got level={level!r}')


class _Easel:
    """A scene in the making."""

    def __init__(self, draws: Draws, size: int, level: Level):
        self.draws = draws
        self.level = level
        self.points = UNITS * np.arange(size, dtype=np.int64)
        self.extent = UNITS * size
        self.light = draws.integer(0, TURNS - 1)
        self.hues = self._hues()
        self.image = self._background()
        self.occlusion = Occlusion(size)
        self.labels: list[int] = []

    def scene(self) -> Scene:
        self._strew_sticks(self.level.sticks_below)
        for _ in range(self.draws.integer(FEWEST_FIGURES, MOST_FIGURES)):
            self._add_figure()
        self._strew_sticks(self.level.sticks_above)
        self._dim()
        return Scene(self.image.astype(np.uint8), self.occlusion.instances_HW, tuple(self.labels))

    def _hues(self) -> list[int]:
        """One for the background and each figure, all around the wheel, so that none melt."""
        count = MOST_FIGURES + 1
        start = self.draws.integer(0, HUES - 1)
        return [start + place * HUES // count for place in self.draws.order(count)]

    def _background(self) -> np.ndarray:
        draws = self.draws
        value = draws.integer(*self.level.ground)
        near, far = (
            colour(self.hues[0] + draws.integer(0, 96), draws.integer(30, 90), value + change)
            for change in (draws.integer(0, 30), -draws.integer(0, 30))
        )
        share = _rise(along(draws.integer(0, TURNS - 1), self.points, self.points), 256)
        image = near + ((far - near) * share[..., None] >> 8)
        return self._textured(image, self.points, self.points, self.extent // 6)

    def _textured(
        self, image: np.ndarray, ys: np.ndarray, xs: np.ndarray, period: int
    ) -> np.ndarray:
        if not self.level.texture:
            return image
        pattern = texture(self.draws, ys, xs, period)
        strength = self.draws.integer(self.level.texture // 3, self.level.texture)
        return lit(image, 256 + (pattern * strength >> 7))

    def _add_figure(self) -> None:
        draws, extent = self.draws, self.extent
        for _ in range(TRIES):
            label = draws.integer(0, len(CLASSES) - 1)
            radius = draws.integer(*(extent * part // 64 for part in self.level.radii))
            centre = tuple(draws.integer(radius, extent - radius) for _ in range(2))
            stamp = figure(CLASSES[label], centre, radius, draws.integer(0, TURNS - 1))
            if self.occlusion.leaves_enough(stamp):
                self.labels.append(label)
                self.occlusion.add_figure(stamp)
                self._paint_figure(stamp, centre, radius, self.hues[len(self.labels)])
                return

    def _paint_figure(self, stamp: Stamp, centre: tuple[int, int], radius: int, hue: int) -> None:
        draws = self.draws
        length = max(radius // (6 * UNITS), 1)
        cast_shadow(self.image, stamp, self.light + TURNS // 2, length, softness=length, depth=110)
        height, width = stamp.coverage_HW.shape
        ys = UNITS * np.arange(stamp.top, stamp.top + height, dtype=np.int64) - centre[1]
        xs = UNITS * np.arange(stamp.left, stamp.left + width, dtype=np.int64) - centre[0]
        shade = 256 + draws.integer(20, 70) * along(self.light, ys, xs) // radius
        paint = lit(colour(hue, draws.integer(80, 180), draws.integer(*self.level.figures)), shade)
        blend(self.image, stamp, self._textured(paint, ys, xs, radius * 2 // 3))

    def _strew_sticks(self, count: int) -> None:
        """Lay thin sticks about, which are no figures and hide them like background."""
        draws, extent = self.draws, self.extent
        for _ in range(count):
            centre = draws.integer(0, extent), draws.integer(0, extent)
            radius, half = draws.integer(extent // 10, extent // 3), draws.integer(20, 60)
            corners = ((-1000, -half), (1000, -half), (1000, half), (-1000, half))
            stamp = polygon(turned(corners, centre, radius, draws.integer(0, TURNS - 1)))
            rgb = colour(draws.integer(0, HUES - 1), draws.integer(0, 255), draws.integer(30, 255))
            if self.occlusion.leaves_enough(stamp):
                self.occlusion.add_background(stamp)
                blend(self.image, stamp, np.broadcast_to(rgb, (*stamp.coverage_HW.shape, 3)))

    def _dim(self) -> None:
        """Let the light fall off across the scene, and add the camera's noise."""
        way = along(self.light + TURNS // 2, self.points, self.points)
        self.image = lit(self.image, 256 - _rise(way, self.draws.integer(0, 80)))
        reach = self.level.noise
        if reach:
            noise = self.draws.array(self.image.shape, 2 * reach + 1) - reach
            self.image = np.clip(self.image + noise, 0, 255)


def _rise(values: np.ndarray, height: int) -> np.ndarray:
    """Values stretched to go from 0 to ``height``."""
    return (values - values.min()) * height // (values.max() - values.min())
