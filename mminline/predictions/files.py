"""Write predictions: objects as JSON in the words of COCO, classes of pixels as a PNG."""

import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from .run_lengths import encode_mask
from .whole_file import whole_file


def save_instances(
    path: str | Path,
    shape: tuple[int, int],
    boxes: np.ndarray,
    labels: Sequence[int],
    scores: Sequence[float],
    masks: Sequence[np.ndarray | dict] | None,
    classes: Sequence[str],
) -> None:
    """Write objects with boxes as x, y, width, height and masks as run lengths.

    Args:
        path: File to write.
        shape: Height and width of the image.
        boxes: Left, top, right and bottom of each object.
        labels: Index of the class of each object.
        scores: Score of each object.
        masks: Mask of each object, boolean and of the size of the image, or its run lengths;
            None for boxes only.
        classes: Names of the classes.
    """
    instances = []
    for index, (label, score) in enumerate(zip(labels, scores, strict=True)):
        left, top, right, bottom = map(float, boxes[index])
        instance = dict(
            label=int(label),
            category=classes[label],
            score=float(score),
            bbox=[left, top, right - left, bottom - top],
        )
        if masks is not None:
            mask = masks[index]
            instance['segmentation'] = mask if isinstance(mask, dict) else encode_mask(mask)
        instances.append(instance)
    height, width = shape
    text = json.dumps(dict(height=height, width=width, instances=instances)) + '\n'
    _write(path, text.encode())


def save_classes(path: str | Path, class_map_HW: np.ndarray, num_classes: int) -> None:
    """Write the index of the class of each pixel as a PNG of 8 bits, or 16 beyond 256 classes."""
    dtype = np.uint8 if num_classes <= 256 else np.uint16
    _, png = cv2.imencode('.png', class_map_HW.astype(dtype, copy=False))
    _write(path, png.tobytes())


def _write(path: str | Path, content: bytes) -> None:
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content)
