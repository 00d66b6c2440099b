"""Images to the size that a model was tested with."""

from collections.abc import Mapping

import cv2
import numpy as np


def resize(image_HWC: np.ndarray, rule: Mapping) -> np.ndarray:
    """Resize an image bilinearly, as ``Resize`` of mmcv does.

    Args:
        image_HWC: Image.
        rule: ``scale``, width and height, or ``scale_factor``, one for each; with ``keep_ratio``
            the image is made as large as fits in ``scale``, in any orientation. Empty for images
            that stay as they are.
    """
    if not rule:
        return image_HWC
    height, width = image_HWC.shape[:2]
    scale = rule.get('scale') or [
        int(side * factor + 0.5)
        for side, factor in zip((width, height), rule['scale_factor'], strict=True)
    ]
    if rule['keep_ratio']:
        factor = min(max(scale) / max(height, width), min(scale) / min(height, width))
        scale = [int(side * factor + 0.5) for side in (width, height)]
    if tuple(scale) == (width, height):
        return image_HWC
    if min(scale) < 1:
        raise ValueError(
            f'an image of {width} x {height} px cannot be resized: its shorter side would be less '
            'than 1 px'
        )
    return cv2.resize(image_HWC, tuple(scale), interpolation=cv2.INTER_LINEAR)
