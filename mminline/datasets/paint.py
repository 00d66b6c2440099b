"""Colour, light and texture, in integers alone: factors are in 1/256."""

import numpy as np

from .draws import Draws
from .figures import FULL, TURNS, Stamp, direction

HUES = 6 * 256
TEXTURES = ('stripes', 'checks', 'dots', 'clouds')


def colour(hue: int, saturation: int, value: int) -> np.ndarray:
    """Red, green and blue of a hue (``HUES`` go around the wheel); the others are up to 255."""
    wheel = (hue + np.array((0, 1024, 512), np.int64)) % HUES
    pure = np.clip(abs(wheel - 768) - 256, 0, 255)
    return value * (255 * (255 - saturation) + saturation * pure) // 255**2


def along(turn: int, ys: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """How far each point of a grid lies in a direction, in the units of ``ys`` and ``xs``."""
    cosine, sine, divisor = direction(turn)
    return (xs * cosine + (ys * sine)[:, None]) // divisor


def texture(draws: Draws, ys: np.ndarray, xs: np.ndarray, period: int) -> np.ndarray:
    """A pattern of soft waves or clouds over a grid of points, from -128 to 128."""
    kind = TEXTURES[draws.integer(0, len(TEXTURES) - 1)]
    if kind == 'clouds':
        return _clouds(draws, ys, xs, period)
    turn = draws.integer(0, TURNS - 1)
    across = _wave(along(turn, ys, xs), period)
    if kind == 'stripes':
        return across
    down = _wave(along(turn + TURNS // 4, ys, xs), period)
    if kind == 'checks':
        return np.clip(across * down // 48, -128, 128)
    return np.clip(2 * (across + down) - 96, -128, 128)


def _wave(distances: np.ndarray, period: int) -> np.ndarray:
    """A triangle wave from -128 to 128."""
    return 128 - abs(distances % period * 512 // period - 256)


def _clouds(draws: Draws, ys: np.ndarray, xs: np.ndarray, period: int) -> np.ndarray:
    """Random heights on a coarse grid, joined linearly."""
    (rows, down), (columns, right) = (
        np.divmod((points - points[0]) * 256 // period, 256) for points in (ys, xs)
    )
    heights = draws.array((rows[-1] + 2, columns[-1] + 2), 257) - 128
    left, beside = heights[:, columns], heights[:, columns + 1]
    lines = left * 256 + (beside - left) * right
    upper, lower = lines[rows] // 256, lines[rows + 1] // 256
    return upper + (lower - upper) * down[:, None] // 256


def lit(paint: np.ndarray, light_HW: np.ndarray) -> np.ndarray:
    """A colour, or an image, under light that varies (256: as it is)."""
    return np.clip(paint * light_HW[..., None] >> 8, 0, 255)


def blend(image_HWC: np.ndarray, stamp: Stamp, paint_HWC: np.ndarray) -> None:
    """Put paint over an image where a stamp covers it."""
    on_image, in_stamp = stamp.windows(len(image_HWC))
    below = image_HWC[on_image]
    coverage_HW1 = stamp.coverage_HW[in_stamp][..., None]
    below += (paint_HWC[in_stamp] - below) * coverage_HW1 // FULL


def cast_shadow(
    image_HWC: np.ndarray, stamp: Stamp, turn: int, length: int, softness: int, depth: int
) -> None:
    """Darken an image by the shadow of a stamp, thrown in a direction.

    Args:
        image_HWC: The image, changed in place.
        stamp: What throws the shadow.
        turn: The direction.
        length: How many pixels the shadow is away from the stamp.
        softness: Over how many pixels, to each side, the shadow is blurred.
        depth: How much light a full shadow takes, of 256.
    """
    cosine, sine, divisor = direction(turn)
    shadow = Stamp(
        _blurred(stamp.coverage_HW * depth // FULL, softness),
        stamp.top + length * sine // divisor - softness,
        stamp.left + length * cosine // divisor - softness,
    )
    on_image, in_stamp = shadow.windows(len(image_HWC))
    below = image_HWC[on_image]
    below -= below * shadow.coverage_HW[in_stamp][..., None] >> 8


def _blurred(values_HW: np.ndarray, reach: int) -> np.ndarray:
    """Mean over squares of ``2 * reach + 1``; the result is larger by ``reach`` on each side."""
    width = 2 * reach + 1
    for _ in range(2):
        sums = np.cumsum(np.pad(values_HW, ((width, width - 1), (0, 0))), axis=0, dtype=np.int32)
        values_HW = (sums[width:] - sums[:-width]).T // width
    return values_HW
