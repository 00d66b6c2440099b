"""Levels of difficulty of Shapes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """Difficulty of a scene.

    Attributes:
        radii: The smallest and the largest figure, in 1/64 of the scene.
        background: How bright the background may be, from and to, of 255.
        figures: How bright figures may be.
        texture: How strong patterns may be, of 256.
        noise: How far the camera's noise goes up and down, of 255.
        sticks_below: Sticks that lie about under the figures.
        sticks_above: Sticks that lie over them.
    """

    radii: tuple[int, int] = (5, 16)
    background: tuple[int, int] = (40, 225)
    figures: tuple[int, int] = (130, 245)
    texture: int = 0
    noise: int = 0
    sticks_below: int = 0
    sticks_above: int = 0


# The plain level is for runs of a few minutes: figures of similar size, always brighter than the
# ground, are learnt in fewer steps than figures that may be darker as well.
LEVELS = dict(
    plain=Level(radii=(7, 13), background=(40, 95), figures=(200, 250)),
    textured=Level(texture=56),
    cluttered=Level(texture=72, noise=12, sticks_below=8, sticks_above=4),
)
