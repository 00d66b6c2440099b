"""Comparison of two sets of instances."""

import torch
from mmengine.structures import InstanceData
from pycocotools import mask


def compare(found: InstanceData, expected: InstanceData, tolerance: float = 1e-4) -> float:
    """Match instances one to one; return the part of the mask pixels that differ."""
    assert len(found) == len(expected) > 5
    different = total = 0
    left = list(range(len(expected)))
    for number in range(len(found)):
        distances = [
            (found.bboxes[number] - expected.bboxes[other]).abs().max()
            + (found.scores[number] - expected.scores[other]).abs()
            + 1e3 * (found.labels[number] != expected.labels[other])
            for other in left
        ]
        nearest = int(torch.stack(distances).argmin())
        assert distances[nearest] < tolerance
        other = left.pop(nearest)
        if 'masks' in expected:
            pixels = expected.masks[other].numpy()
            total += pixels.sum()
            different += (mask.decode(found.masks[number]).astype(bool) != pixels).sum()
    return different / max(total, 1)
