"""Scenes of Shapes: a few figures on a lit background, drawn from a seed."""

from dataclasses import dataclass

import numpy as np

from .builder import SceneBuilder
from .levels import LEVELS
from .random_integers import RandomIntegers

SPLITS = ('train', 'val')
MIN_SIZE = 64
SHAPE_STREAM = 1


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
    index: int,
    split: str = 'train',
    seed: int = 0,
    size: int | tuple[int, int] = 128,
    level: str = 'plain',
) -> Scene:
    """Draw one scene, the same for the same arguments however many others are drawn.

    Shape and colour are drawn apart from each other, so only its outline tells a figure's class.
    A figure that would leave less than three quarters of an earlier one in sight is put elsewhere
    or left out: every figure in a picture can be recognised, and is in ``instances_HW``.

    Args:
        index: Number of the scene in its split.
        split: One of ``SPLITS``.
        seed: Scenes of another seed are other scenes.
        size: Height and width in pixels; or the least and the greatest, between which both are
            drawn for each scene.
        level: One of ``LEVELS``.
    """
    check_scene_settings(size, seed, level)
    if split not in SPLITS:
        raise ValueError(f'split has to be one of {SPLITS}, got split={split!r}')
    if index < 0:
        raise ValueError(f'index has to be at least 0, got index={index}')
    key = (seed, SPLITS.index(split), index)
    shape = (size, size)
    if not isinstance(size, int):
        # A stream of its own, so that all other draws are those of scenes of one size.
        sides = RandomIntegers(*key, SHAPE_STREAM)
        shape = (sides.integer(*size), sides.integer(*size))
    builder = SceneBuilder(RandomIntegers(*key), shape, LEVELS[level])
    builder.build()
    return Scene(
        builder.image.astype(np.uint8), builder.occlusion.instances_HW, tuple(builder.labels)
    )


def check_scene_settings(size: int | tuple[int, int], seed: int, level: str) -> None:
    """Refuse settings with which no scene can be drawn."""
    sizes = [size, size] if isinstance(size, int) else list(size)
    if len(sizes) != 2 or sizes != sorted(sizes):
        raise ValueError(f'size has to be one number, or the least and the greatest, got {size=}')
    if sizes[0] < MIN_SIZE:
        raise ValueError(f'size has to be at least {MIN_SIZE}, got size={size}')
    if seed < 0:
        raise ValueError(f'seed has to be at least 0, got seed={seed}')
    if level not in LEVELS:
        raise ValueError(f'level has to be one of {tuple(LEVELS)}, got level={level!r}')
