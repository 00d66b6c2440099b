"""Image files: which ones are asked for, and their pixels."""

import contextlib
from pathlib import Path

import cv2
import numpy as np

from .whole_file import whole_file

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
    # Encoded first: OpenCV may leave half a picture on a full disk, without an error.
    try:
        is_encoded, content = cv2.imencode(path.suffix, picture_HWC)
    except cv2.error as error:
        raise OSError(f'{path} cannot be written: {error}') from None
    if not is_encoded:
        raise OSError(f'{path} cannot be written: its format cannot hold the picture')
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content.tobytes())
