"""One item after the other: read, predict, draw, write."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from mmengine.utils import ProgressBar

from ..apis import Predictor
from ..engine.stopwatch import Stopwatch
from ..execution.slabs import is_parallel


def infer(
    items: Iterable[tuple[str, Callable[[], np.ndarray]]],
    total: int,
    predictor: Predictor,
    predictions: Path,
    keep: Callable[[str, np.ndarray], None],
) -> int:
    """Predict for each item, whatever becomes of the others; return how many were done.

    Args:
        items: Name of each image, and how to get it.
        total: Number of items.
        predictor: The model.
        predictions: Folder for predictions as data.
        keep: Called with the name and the picture of each.
    """
    done = 0
    progress = ProgressBar(total)
    stopwatch = Stopwatch()
    for name, read in stopwatch.measure_items('read', items):
        try:
            with stopwatch.measure('read'):
                image_HWC = read()
            with stopwatch.measure('predict'):
                sample = predictor.predict(image_HWC)
            with stopwatch.measure('draw'):
                picture_HWC = predictor.draw(image_HWC, sample)
            with stopwatch.measure('write'):
                predictor.save(sample, predictions / name)
                keep(name, picture_HWC)
            done += 1
        except Exception as error:  # no image may keep the others from being done
            if is_parallel():  # then there is one, and the other processes cannot go on
                raise
            print(f'\nSkipped {name}: {error}', file=sys.stderr)
        progress.update()
    print()
    if done:
        print(f'Seconds for each image: {stopwatch.describe(done)}')
    return done
