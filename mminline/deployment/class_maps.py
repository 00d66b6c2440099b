"""Scores of classes to the class of each pixel of an image."""

import numpy as np


def classify(
    scores_KHW: np.ndarray,
    input_size: tuple[int, int],
    size: tuple[int, int],
    align_corners: bool,
    threshold: float | None,
) -> np.ndarray:
    """Resize scores as mmseg does, first to the input of the model, and compare them.

    Args:
        scores_KHW: Scores of a head.
        input_size: Height and width of the resized image that the model got.
        size: Height and width of the image.
        align_corners: Whether corner cells stay in the corners when scores are resized.
        threshold: Least probability of the only class, if there is no other.

    Returns:
        Class of each pixel of the image.
    """
    for wanted in (input_size, size):
        scores_KHW = resize_scores(scores_KHW, wanted, align_corners)
    if len(scores_KHW) > 1:
        return scores_KHW.argmax(axis=0)
    return (1 / (1 + np.exp(-scores_KHW[0])) > threshold).astype(int)


def resize_scores(scores_KHW: np.ndarray, size: tuple[int, int], align_corners: bool) -> np.ndarray:
    """Resize maps bilinearly, one side after the other."""
    for axis, side in enumerate(size, start=1):
        cells = scores_KHW.shape[axis]
        place = np.arange(side, dtype=np.float32)
        if align_corners:
            place *= (cells - 1) / max(side - 1, 1)
        else:
            place = np.maximum((place + 0.5) * (cells / side) - 0.5, 0)
        first = place.astype(int)
        second = np.minimum(first + 1, cells - 1)
        share = (place - first).astype(np.float32)
        if axis == 1:
            share = share[:, None]
        low, high = (scores_KHW.take(index, axis) for index in (first, second))
        scores_KHW = low + share * (high - low)
    return scores_KHW
