"""Check what is to be drawn on."""

import numpy as np


def check_image(image_HWC: np.ndarray) -> None:
    """Raise an error unless an image is as OpenCV reads one in colour."""
    if image_HWC.ndim != 3 or image_HWC.shape[2] != 3 or image_HWC.dtype != np.uint8:
        raise ValueError(
            'image_HWC has to be of bytes with shape (height, width, 3), '
            f'got {image_HWC.dtype} with shape {image_HWC.shape}'
        )
