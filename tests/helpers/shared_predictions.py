"""Predictions for images that several processes share."""

import numpy as np
import torch.distributed as dist
from mmengine.structures import InstanceData
from torch import nn

import mminline
from helpers.double_precision import double_precision
from helpers.large_models import DETECTORS, build_detector, build_segmentor, random_image
from helpers.lost_peer import end_here, seconds_since_end
from mminline import large
from mminline.execution.slabs import LostProcessError

SIZES = ((160, 96), (203, 157))
FLOAT32_SIZES = ((700, 590), (613, 832))
# Cells and channels enough that PyTorch takes the same kernel for maps of the whole and of slabs.
FLOAT32_CHANNELS = 128


def build(kind: str) -> nn.Module:
    return build_detector(kind).double() if kind in DETECTORS else build_segmentor(kind)


def predict_shared(rank: int, kinds: list[str]) -> dict[tuple, np.ndarray | InstanceData | None]:
    """Predict with each kind of model in float64, by two and by three processes."""
    groups = {count: dist.new_group(list(range(count))) for count in (2, 3)}
    results = {}
    for kind in kinds:
        model = build(kind)
        for size in SIZES:
            for count, group in groups.items():
                if rank < count:
                    with double_precision(), mminline.spatial_parallel(group):
                        result = large.predict(model, random_image(*size), band_rows=64)
                    results[kind, size, count] = result
    return results


def predict_shared_in_float32(rank: int, kinds: list[str]) -> dict[tuple, np.ndarray | None]:
    """Predict with segmentors in float32, by two and by three processes."""
    groups = {count: dist.new_group(list(range(count))) for count in (2, 3)}
    results = {}
    for kind in kinds:
        model = build_segmentor(kind, channels=FLOAT32_CHANNELS).float()
        for size in FLOAT32_SIZES:
            for count, group in groups.items():
                if rank < count:
                    with mminline.spatial_parallel(group):
                        results[kind, size, count] = large.predict(model, random_image(*size))
    return results


def lose_peer(rank: int, kind: str, folder: str) -> tuple[str, float]:
    """Message of a process whose peer is killed before it sends what it found, and its time."""
    model = build(kind)

    def report(part: str, done: int, total: int) -> None:
        if rank == 1 and part != 'backbone':
            end_here(folder)

    out = None if kind in DETECTORS else f'{folder}/classes.png'
    with double_precision(), mminline.spatial_parallel():
        try:
            large.predict(model, random_image(160, 96), out=out, report=report)
        except LostProcessError as error:
            return str(error), seconds_since_end(folder)
