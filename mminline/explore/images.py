"""Images that are picked or uploaded, and the size in which the page shows them."""

import contextlib
from pathlib import Path

import cv2
import mmcv
import numpy as np

SMALLEST = 32  # px; the backbones take no less
SHOWN = (640, 1280)  # px; longer side of pictures on the page
THUMBNAIL = 160


def read_image(path: str | Path) -> np.ndarray:
    """Read an image in colour, blue first, or say why it cannot be explored."""
    name, image_HWC = Path(path).name, None
    with contextlib.suppress(cv2.error, OSError):
        image_HWC = mmcv.imread(path)
    if image_HWC is None:
        raise ValueError(f'{name} cannot be read: it is empty, damaged or not an image.')
    height, width = image_HWC.shape[:2]
    if min(height, width) < SMALLEST:
        raise ValueError(
            f'An image has to have at least {SMALLEST} x {SMALLEST} px, '
            f'{name} has {width} x {height}.'
        )
    return image_HWC


def shown_scale(image_HWC: np.ndarray) -> float:
    """Pixels of a picture on the page for each pixel of the image."""
    longer = max(image_HWC.shape[:2])
    return float(np.clip(longer, *SHOWN)) / longer


def resize(image_HWC: np.ndarray, scale: float) -> np.ndarray:
    """Resize an image; pixels of a small one stay visible as squares."""
    height, width = (max(round(side * scale), 1) for side in image_HWC.shape[:2])
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    return cv2.resize(image_HWC, (width, height), interpolation=method)


def thumbnail(path: Path) -> np.ndarray:
    """Read an image in the size of the list of images, red first; grey if it cannot be read."""
    try:
        image_HWC = read_image(path)
    except ValueError:
        return np.full((THUMBNAIL, THUMBNAIL, 3), 128, np.uint8)
    return mmcv.bgr2rgb(resize(image_HWC, THUMBNAIL / max(image_HWC.shape[:2])))
