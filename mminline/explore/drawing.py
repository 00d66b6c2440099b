"""Pictures of the weights of a query over its image, in diverging colours.

The same look as the figures of ``mminline.analysis``, drawn by OpenCV, which takes milliseconds.
"""

import dataclasses
import functools

import cv2
import matplotlib
import numpy as np

from ..visualization.text import TextStyle

PALE = 0.5  # share of white in the grey image behind the weights
LEAST_OPACITY = 0.2
YELLOW, BLACK, WHITE = (66, 228, 240), (0, 0, 0), (255, 255, 255)  # blue first


@functools.cache
def colour_table() -> np.ndarray:
    """Colours from negative to positive weights, blue first: blue, white in the middle, red."""
    rgba = matplotlib.colormaps['RdBu_r'](np.arange(256), bytes=True)
    return np.ascontiguousarray(rgba[:, None, 2::-1])


def pale_grey(image_HWC: np.ndarray) -> np.ndarray:
    """Take the colours out of an image and brighten it, so that weights stand out."""
    grey_HW = cv2.cvtColor(image_HWC, cv2.COLOR_BGR2GRAY)
    pale_HW = cv2.convertScaleAbs(grey_HW, alpha=1 - PALE, beta=255 * PALE)
    return cv2.cvtColor(pale_HW, cv2.COLOR_GRAY2BGR)


def draw_weights(
    pale_HWC: np.ndarray, values_HW: np.ndarray, covered: tuple[float, float]
) -> np.ndarray:
    """Draw weights over an image: red is positive, blue negative, with the same range on both.

    The larger a weight, the less of the image is seen.

    Args:
        pale_HWC: Image of ``pale_grey``.
        values_HW: The weights.
        covered: Width and height of the picture that the map covers, in its pixels; what lies
            beyond the picture is cut off.
    """
    size_HW = np.abs(values_HW)
    limit = max(float(size_HW.max()), np.finfo(np.float32).tiny)
    level_HW = np.rint(127.5 + 127.5 * (values_HW / limit)).astype(np.uint8)
    opacity_HW = LEAST_OPACITY + (1 - LEAST_OPACITY) * (size_HW / limit)
    colours_HWC = cv2.applyColorMap(level_HW, colour_table())
    rows, columns = (
        _cells(cells, length, side)
        for cells, length, side in zip(
            values_HW.shape, covered[::-1], pale_HWC.shape[:2], strict=True
        )
    )
    colours_HWC = colours_HWC.astype(np.float32)[rows][:, columns]
    opacity_HW1 = opacity_HW.astype(np.float32)[rows][:, columns, None]
    return (pale_HWC + opacity_HW1 * (colours_HWC - pale_HWC)).astype(np.uint8)


def _cells(cells: int, length: float, side: int) -> np.ndarray:
    """Cell of the map under each row, or column, of a picture."""
    return np.minimum(((np.arange(side) + 0.5) * cells / length).astype(int), cells - 1)


def add_mark(picture_HWC: np.ndarray, point: tuple[float, float]) -> np.ndarray:
    """Mark a point with a cross, on a copy."""
    marked_HWC = picture_HWC.copy()
    side = max(min(marked_HWC.shape[:2]) // 24, 12)
    centre = tuple(round(value) for value in point)
    for colour, line in ((BLACK, 5), (YELLOW, 2)):
        cv2.drawMarker(marked_HWC, centre, colour, cv2.MARKER_CROSS, side, line, cv2.LINE_AA)
    return marked_HWC


def _twice(style: TextStyle) -> TextStyle:
    """Double a style: maps are shown smaller than the pictures that its sizes are for."""
    return TextStyle(*(2 * size for size in dataclasses.astuple(style)))


def add_scale(picture_HWC: np.ndarray, limit: float) -> np.ndarray:
    """Put a bar of the colours under a picture, with the weights at its ends."""
    style = _twice(TextStyle.for_picture(picture_HWC))
    texts = (f'{-limit:.3g}', '0', f'{limit:.3g}')
    sizes = [style.size(text) for text in texts]
    width, line = picture_HWC.shape[1], max(height for _, height in sizes)
    ramp_1W = np.linspace(0, 255, width).round().astype(np.uint8)[None]
    bar_HWC = cv2.applyColorMap(ramp_1W.repeat(line // 2, axis=0), colour_table())
    legend_HWC = np.full((line, width, 3), 255, np.uint8)
    for text, (length, _), share in zip(texts, sizes, (0, 0.5, 1), strict=True):
        style.write(legend_HWC, text, (round(share * (width - length)), 0), BLACK)
    return np.concatenate([picture_HWC, bar_HWC, legend_HWC])
