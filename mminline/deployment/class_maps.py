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
    # One class at a time: 150 classes at the size of a photograph would take tens of gigabytes.
    best_HW, classes_HW = None, np.zeros(size, int)
    for index, scores_HW in enumerate(scores_KHW):
        for wanted in (input_size, size):
            scores_HW = resize_scores(scores_HW, wanted, align_corners)
        if best_HW is None:
            best_HW = scores_HW
        else:
            classes_HW[scores_HW > best_HW] = index
            best_HW = np.maximum(best_HW, scores_HW)
    if len(scores_KHW) > 1:
        return classes_HW
    return (best_HW > np.log(threshold / (1 - threshold))).astype(int)


def resize_scores(scores_HW: np.ndarray, size: tuple[int, int], align_corners: bool) -> np.ndarray:
    """Resize a map bilinearly, one side after the other."""
    for axis, side in enumerate(size):
        cells = scores_HW.shape[axis]
        place = np.arange(side, dtype=np.float32)
        if align_corners:
            place *= (cells - 1) / max(side - 1, 1)
        else:
            place = np.maximum((place + 0.5) * (cells / side) - 0.5, 0)
        first = place.astype(int)
        second = np.minimum(first + 1, cells - 1)
        share = (place - first).astype(np.float32)
        if axis == 0:
            share = share[:, None]
        low, high = (scores_HW.take(index, axis) for index in (first, second))
        scores_HW = low + share * (high - low)
    return scores_HW
