"""Colours of classes, and of text on them."""

import colorsys
from collections.abc import Sequence

import numpy as np

# Steps of the golden ratio around the circle of hues never come back to the same one.
GOLDEN_RATIO = 0.618034
BLACK, WHITE = (0, 0, 0), (255, 255, 255)

Colour = tuple[int, int, int]


def class_colours(palette: Sequence[Sequence[int]] | None, num_classes: int) -> list[Colour]:
    """Return one colour for each class, blue first as OpenCV has them.

    Args:
        palette: Red, green and blue of each class, as data sets of OpenMMLab list them. Classes
            beyond its end get colours that differ in hue.
        num_classes: Number of classes.
    """
    given = np.asarray([] if palette is None else palette, np.uint8).reshape(-1, 3).tolist()
    more = [_hue(index) for index in range(len(given), num_classes)]
    return [(blue, green, red) for red, green, blue in [*given[:num_classes], *more]]


def ink_on(colour: Colour) -> Colour:
    """Return black or white, whichever is easier to read on a colour."""
    blue, green, red = colour
    return BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else WHITE


def _hue(index: int) -> Colour:
    rgb = colorsys.hsv_to_rgb(index * GOLDEN_RATIO % 1, 0.85, (0.95, 0.7)[index % 2])
    return tuple(round(255 * part) for part in rgb)
