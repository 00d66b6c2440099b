"""Image files: which ones are asked for, and their pixels."""

import contextlib
from pathlib import Path

import cv2
import numpy as np

IMAGES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


def find_images(source: Path) -> list[Path]:
    """List a single file, or all images of a folder."""
    if not source.exists():
        raise FileNotFoundError(f'There is no file or folder {source}.')
    if source.is_file():
        return [source]
    images = sorted(path for path in source.iterdir() if path.suffix.lower() in IMAGES)
    if not images:
        raise FileNotFoundError(
            f'There is no image in {source} ({", ".join(IMAGES)}; subfolders do not count).'
        )
    return images


def read_image(path: Path) -> np.ndarray:
    """Read an image in colour, blue first, or raise a ValueError."""
    content = np.fromfile(path, np.uint8)
    with contextlib.suppress(cv2.error):
        image_HWC = cv2.imdecode(content, cv2.IMREAD_COLOR)
        if image_HWC is not None:
            return image_HWC
    raise ValueError('it is empty, cut off or no image')


def write_image(path: Path, picture_HWC: np.ndarray) -> None:
    """Write a picture in the format of the file's name, or raise an OSError.

    Images may be arrays in a ``.npy`` file, which is no format of pictures: that is a PNG then.
    """
    if path.suffix.lower() == '.npy':
        path = path.with_name(f'{path.name}.png')
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), picture_HWC):
        raise OSError(f'{path} cannot be written')
