"""Exported files against the model that they were made of: values and time."""

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from .files import ExportError, Run

# Of the largest value for features; of the pixels for a class map, where ties may fall either way.
LARGEST_DIFFERENCE = 1e-3
# Batch, height and width: the smallest, odd ones, long ones, and other numbers of images.
OPEN_SHAPES = ((1, 32, 32), (2, 65, 97), (1, 224, 224), (3, 129, 260), (1, 333, 245))
BatchShape = tuple[int, int, int]


def differences(
    module: nn.Module, run: Run, shapes: list[BatchShape]
) -> Iterator[tuple[BatchShape, float]]:
    """Compare a file with PyTorch at each batch, height and width.

    Differences of features are relative to the largest value of a map; that of a class map is the
    share of pixels.
    """
    generator = torch.Generator().manual_seed(0)
    for batch, *side in shapes:
        pixels = (batch, module.backbone.in_channels, *side)
        image = torch.randint(256, pixels, generator=generator).float()
        if not module.normalize:
            image = (image - 127) / 60
        with torch.no_grad():
            expected = module(image)
        try:
            found = run(image)
        except Exception as error:  # runtimes raise all kinds
            shape = tuple(image.shape)
            raise ExportError(f'the file does not run at {shape}: {error}') from error
        yield (batch, *side), _difference(found, expected)


def _difference(found: list[np.ndarray], expected: tuple[Tensor, ...] | Tensor) -> float:
    if isinstance(expected, Tensor):
        return float((found[0] != expected.numpy()).mean())
    # np.max keeps a NaN of any map; Python's max would lose one that is not in the first.
    return float(
        np.max(
            [
                np.abs(part - wanted.numpy()).max() / float(wanted.abs().max())
                for part, wanted in zip(found, expected, strict=True)
            ]
        )
    )


def time_in_turn(
    module: nn.Module, run: Run, shape: tuple[int, int], rounds: int
) -> tuple[float, float]:
    """Return median seconds of a file and of PyTorch for one image, each warmed up before."""
    image = torch.rand(1, module.backbone.in_channels, *shape)
    seconds = [], []
    with torch.no_grad():
        for _ in range(rounds + 1):
            for times, call in zip(seconds, (run, module), strict=True):
                start = time.perf_counter()
                call(image)
                times.append(time.perf_counter() - start)
    return tuple(float(np.median(times[1:])) for times in seconds)
