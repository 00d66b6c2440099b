"""Colour, light and texture, in integers alone: factors are in 1/256."""

import numpy as np

from .figures import ANGLES, FULL, CoverageMask, rotation
from .random_integers import RandomIntegers

HUES = 6 * 256
TEXTURES = ('stripes', 'checks', 'dots', 'clouds')


def hsv_to_rgb(hue: int, saturation: int, value: int) -> np.ndarray:
    """Convert a hue (``HUES`` go around the wheel), saturation and value (up to 255) to RGB."""
    wheel = (hue + np.array((0, 1024, 512), np.int64)) % HUES
    pure = np.clip(abs(wheel - 768) - 256, 0, 255)
    return value * (255 * (255 - saturation) + saturation * pure) // 255**2


def project(angle: int, ys: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """Project the points of a grid on a direction, in the units of ``ys`` and ``xs``."""
    cosine, sine, divisor = rotation(angle)
    return (xs * cosine + (ys * sine)[:, None]) // divisor


def texture(rng: RandomIntegers, ys: np.ndarray, xs: np.ndarray, period: int) -> np.ndarray:
    """A pattern of soft waves or clouds over a grid of points, from -128 to 128."""
    kind = TEXTURES[rng.integer(0, len(TEXTURES) - 1)]
    if kind == 'clouds':
        return _clouds(rng, ys, xs, period)
    angle = rng.integer(0, ANGLES - 1)
    across = _wave(project(angle, ys, xs), period)
    if kind == 'stripes':
        return across
    down = _wave(project(angle + ANGLES // 4, ys, xs), period)
    if kind == 'checks':
        return np.clip(across * down // 48, -128, 128)
    return np.clip(2 * (across + down) - 96, -128, 128)


def _wave(distances: np.ndarray, period: int) -> np.ndarray:
    """A triangle wave from -128 to 128."""
    return 128 - abs(distances % period * 512 // period - 256)


def _clouds(rng: RandomIntegers, ys: np.ndarray, xs: np.ndarray, period: int) -> np.ndarray:
    """Random heights on a coarse grid, joined linearly."""
    (rows, down), (columns, right) = (
        np.divmod((points - points[0]) * 256 // period, 256) for points in (ys, xs)
    )
    heights = rng.array((rows[-1] + 2, columns[-1] + 2), 257) - 128
    left, beside = heights[:, columns], heights[:, columns + 1]
    lines = left * 256 + (beside - left) * right
    upper, lower = lines[rows] // 256, lines[rows + 1] // 256
    return upper + (lower - upper) * down[:, None] // 256


def apply_light(rgb: np.ndarray, light_HW: np.ndarray) -> np.ndarray:
    """Show a colour, or an image, under light that varies (256: as it is)."""
    return np.clip(rgb * light_HW[..., None] >> 8, 0, 255)


def blend(image_HWC: np.ndarray, mask: CoverageMask, rgb_HWC: np.ndarray) -> None:
    """Put colours over an image where a mask covers it."""
    of_image, of_mask = mask.overlap(image_HWC.shape[:2])
    below = image_HWC[of_image]
    coverage_HW1 = mask.coverage_HW[of_mask][..., None]
    below += (rgb_HWC[of_mask] - below) * coverage_HW1 // FULL


def cast_shadow(
    image_HWC: np.ndarray, mask: CoverageMask, angle: int, length: int, softness: int, depth: int
) -> None:
    """Darken an image by the shadow of a mask, thrown in a direction.

    Args:
        image_HWC: The image, changed in place.
        mask: What throws the shadow.
        angle: The direction.
        length: How many pixels the shadow is away from the mask.
        softness: Over how many pixels, to each side, the shadow is blurred.
        depth: How much light a full shadow takes, of 256.
    """
    cosine, sine, divisor = rotation(angle)
    shadow = CoverageMask(
        _blur(mask.coverage_HW * depth // FULL, softness),
        mask.top + length * sine // divisor - softness,
        mask.left + length * cosine // divisor - softness,
    )
    of_image, of_mask = shadow.overlap(image_HWC.shape[:2])
    below = image_HWC[of_image]
    below -= below * shadow.coverage_HW[of_mask][..., None] >> 8


def _blur(values_HW: np.ndarray, reach: int) -> np.ndarray:
    """Average over squares of ``2 * reach + 1``; the result is larger by ``reach`` on each side."""
    width = 2 * reach + 1
    for _ in range(2):
        sums = np.cumsum(np.pad(values_HW, ((width, width - 1), (0, 0))), axis=0, dtype=np.int32)
        values_HW = (sums[width:] - sums[:-width]).T // width
    return values_HW
