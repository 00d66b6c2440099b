"""Class maps of images that several processes share."""

import os
import signal

import numpy as np
import torch.distributed as dist

import mminline
from helpers.large_models import build_segmentor, random_image
from mminline import large
from mminline.execution.slabs import LostProcessError

SIZES = ((160, 96), (203, 157))


def predict_shared(rank: int, kinds: list[str]) -> dict[tuple, np.ndarray | None]:
    """Predict with each kind of model, by two and by three processes."""
    groups = {count: dist.new_group(list(range(count))) for count in (2, 3)}
    results = {}
    for kind in kinds:
        model = build_segmentor(kind)
        for size in SIZES:
            for count, group in groups.items():
                if rank < count:
                    with mminline.spatial_parallel(group):
                        classes = large.predict(model, random_image(*size), band_rows=64)
                    results[kind, size, count] = classes
    return results


def write_and_lose_peer(rank: int, folder: str) -> str:
    """Message of a process whose peer is killed before it sends its rows."""
    model = build_segmentor('semantic_fpn')

    def report(part: str, done: int, total: int) -> None:
        if rank == 1 and part != 'backbone':
            os.kill(os.getpid(), signal.SIGKILL)

    with mminline.spatial_parallel():
        try:
            image = random_image(160, 96)
            large.predict(model, image, out=f'{folder}/classes.png', report=report)
        except LostProcessError as error:
            return str(error)
