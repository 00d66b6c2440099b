"""Masks of boxes to masks of an image."""

import cv2
import numpy as np


def paste_masks(
    masks_NMM: np.ndarray, boxes_N4: np.ndarray, size: tuple[int, int], threshold: float
) -> np.ndarray:
    """Resize masks to their boxes bilinearly and make them binary.

    Args:
        masks_NMM: Probabilities inside the boxes.
        boxes_N4: Left, top, right and bottom of each box, in pixels of the image.
        size: Height and width of the image.
        threshold: Least probability of a pixel of an object.

    Returns:
        Boolean masks, ``(N, height, width)``.
    """
    pasted_NHW = np.zeros((len(masks_NMM), *size), bool)
    for pasted_HW, mask_MM, (left, top, right, bottom) in zip(
        pasted_NHW, masks_NMM, boxes_N4.astype(np.float32), strict=True
    ):
        rows, row_weights = _weights(top, bottom, size[0], mask_MM.shape[0])
        columns, column_weights = _weights(left, right, size[1], mask_MM.shape[1])
        pasted_HW[rows, columns] = row_weights @ mask_MM @ column_weights.T >= threshold
    return pasted_NHW


def _weights(low: float, high: float, side: int, cells: int) -> tuple[slice, np.ndarray]:
    """Find the pixels of a box along a side, and the weights of the cells of its mask for each.

    A pixel beyond the box may still be within half a cell of the mask.
    """
    first, last = np.clip([np.floor(low) - 1, np.ceil(high) + 1], 0, side).astype(int)
    pixels = np.arange(first, last, dtype=np.float32) + np.float32(0.5)
    with np.errstate(divide='ignore', invalid='ignore'):
        place = (pixels - low) / (high - low)
    place = np.where(np.isfinite(place), place, np.float32(0.5)) * cells - np.float32(0.5)
    distance = np.abs(place[:, None] - np.arange(cells, dtype=np.float32))
    return slice(first, last), np.maximum(1 - distance, 0)


def resize_masks(masks_NHW: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bring binary masks of one image size to another, each pixel from its nearest."""
    resized = np.zeros((len(masks_NHW), *size), bool)
    for target_HW, mask_HW in zip(resized, masks_NHW, strict=True):
        view_HW = mask_HW.view(np.uint8)
        target_HW[:] = cv2.resize(view_HW, size[::-1], interpolation=cv2.INTER_NEAREST)
    return resized
