"""Detections of an exported file against those of mmdet, as sets."""

from typing import NamedTuple

import numpy as np

from .reference import Detections

# Rounding moves boxes by thousandths of a pixel and scores by millionths.
LARGEST_SHIFT = 0.1  # pixels of a corner
LARGEST_SCORE_DIFFERENCE = 1e-3
LARGEST_MASK_DIFFERENCE = 0.02  # of the pixels of both masks together


class Match(NamedTuple):
    """How two sets of detections compare.

    Args:
        count: Detections of the larger set.
        unmatched: Those without a partner in the other set.
        shift: Largest distance between corners of partners, in pixels.
        score: Largest difference between their scores.
        mask: Largest share of pixels in which their masks differ.
    """

    count: int
    unmatched: int
    shift: float
    score: float
    mask: float


def match(found: Detections, wanted: Detections) -> Match:
    """Pair detections that agree in class, box, score and mask.

    Sets, because boxes with equal scores may come in any order.
    """
    free = set(range(len(found.labels)))
    differences = []
    for index in range(len(wanted.labels)):
        partner = _closest(found, free, wanted, index)
        if partner is not None:
            free.remove(partner[0])
            differences.append(partner[1])
    count = max(len(found.labels), len(wanted.labels))
    largest = np.max(differences, axis=0) if differences else np.zeros(3)
    return Match(count, count - len(differences), *map(float, largest))


def _closest(
    found: Detections, free: set[int], wanted: Detections, index: int
) -> tuple[int, tuple[float, float, float]] | None:
    """Find the detection that agrees with a wanted one, and by how much they differ."""
    candidates = np.array(
        [other for other in sorted(free) if found.labels[other] == wanted.labels[index]], int
    )
    shifts, scores = (
        np.abs(found.dets[candidates, part] - wanted.dets[index, part])
        for part in (slice(0, 4), slice(4, 5))
    )
    order = np.argsort(shifts.max(axis=1, initial=0), kind='stable')
    for place in order[:3]:  # the closest, and others if boxes are nearly equal
        difference = (
            float(shifts[place].max()),
            float(scores[place, 0]),
            _mask_difference(found, candidates[place], wanted, index),
        )
        if _agrees(difference):
            return int(candidates[place]), difference
    return None


def _agrees(difference: tuple[float, float, float]) -> bool:
    limits = (LARGEST_SHIFT, LARGEST_SCORE_DIFFERENCE, LARGEST_MASK_DIFFERENCE)
    return all(value <= limit for value, limit in zip(difference, limits, strict=True))  # nor NaN


def _mask_difference(found: Detections, one: int, wanted: Detections, other: int) -> float:
    if found.masks is None or wanted.masks is None:
        return 0.0
    first, second = found.masks[one], wanted.masks[other]
    return float((first != second).sum() / max((first | second).sum(), 1))
