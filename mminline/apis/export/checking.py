"""Exported files against the model that they were made of: values and time."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .detector import DetectorModel
from .detector_checking import LARGEST_SHARE, Match, compare_detections, mosaic
from .files import ExportError, Run
from .image_model import ImageModel
from .reference import DetectorReference

# Of the largest value for features; of the pixels for a class map, where ties may fall either way.
LARGEST_DIFFERENCE = 1e-3
# Batch, height and width: the smallest, odd ones, long ones, and other numbers of images.
OPEN_SHAPES = ((1, 32, 32), (2, 65, 97), (1, 224, 224), (3, 129, 260), (1, 333, 245))
BatchShape = tuple[int, int, int]


def check_file(
    path: Path, module: ImageModel, run: Run, shapes: list[BatchShape], verbose: bool
) -> dict[BatchShape, float]:
    """Compare a file with the module at all shapes; raise if it differs."""
    if verbose:
        unit = 'largest difference / largest value'
        if module.head is not None:
            unit += ' of the scores, or share of pixels'
        print(f'{"batch":>5}  {"height x width":>14}  {unit}')
    found = {}
    for (batch, height, width), difference in differences(module, run, shapes):
        found[batch, height, width] = difference
        if verbose:
            print(f'{batch:>5}  {height:>6} x {width:<5}  {difference:.1e}', flush=True)
    largest = np.max(list(found.values()))
    if not largest <= LARGEST_DIFFERENCE:  # nor a NaN
        raise ExportError(
            f'{path} does not do what the model does: the largest difference is {largest:.1e}, at '
            f'most {LARGEST_DIFFERENCE:.0e} is expected'
        )
    return found


def differences(
    module: nn.Module, run: Run, shapes: list[BatchShape]
) -> Iterator[tuple[BatchShape, float]]:
    """Compare a file with PyTorch at each batch, height and width.

    Differences of features and scores are relative to the largest value of a map; that of a class
    map is the share of pixels. The largest is returned.
    """
    generator = torch.Generator().manual_seed(0)
    for batch, *side in shapes:
        pixels = (batch, module.in_channels, *side)
        image = torch.randint(256, pixels, generator=generator).float()
        if not module.pixels.normalize:
            image = (image - 127) / 60
        with torch.no_grad():
            expected = module(image)
        try:
            found = run(image)
        except Exception as error:  # runtimes raise all kinds
            shape = tuple(image.shape)
            raise ExportError(f'the file does not run at {shape}: {error}') from error
        yield (batch, *side), _difference(found, expected)


def _difference(found: list[np.ndarray], expected: tuple[Tensor, ...]) -> float:
    # np.max keeps a NaN of any map; Python's max would lose one that is not in the first.
    return float(np.max([_distance(*pair) for pair in zip(found, expected, strict=True)]))


def _distance(found: np.ndarray, expected: Tensor) -> float:
    if not expected.is_floating_point():
        return (found != expected.numpy()).mean()
    return np.abs(found - expected.numpy()).max() / float(expected.abs().max())


def check_detector_file(
    path: Path,
    module: DetectorModel,
    run: Run,
    reference: DetectorReference,
    sizes: list[tuple[int, int]],
    verbose: bool,
) -> dict[BatchShape, float]:
    """Compare a file with mmdet at all sizes; raise if it finds other objects."""

    def report(size: tuple[int, int], match: Match) -> None:
        if verbose:
            print(
                f'{size[0]:>6} x {size[1]:<5}  {match.count:>10}  {match.unmatched:>9}  '
                f'{match.shift:>8.1e}  {match.score:>8.1e}  {match.mask:>8.1e}',
                flush=True,
            )

    if verbose:
        print(f'height x width  detections  unmatched  {"box (px)":>8}  {"score":>8}  {"mask":>8}')
    matches = compare_detections(module, run, reference, sizes, report)
    count, unmatched = (
        sum(getattr(match, name) for match in matches.values()) for name in ('count', 'unmatched')
    )
    if not count:
        raise ExportError(f'{path} cannot be compared: the model detects nothing in any image')
    if unmatched > LARGEST_SHARE * count:
        raise ExportError(
            f'{path} does not do what the model does: {unmatched} of {count} detections have no '
            f'partner in the other, at most {LARGEST_SHARE:.0%} is expected'
        )
    return {(1, *size): part.unmatched / max(part.count, 1) for size, part in matches.items()}


def time_in_turn(
    reference: Callable[[Tensor], object], run: Run, shape: tuple[int, int], rounds: int
) -> tuple[float, float]:
    """Return median seconds of a file and of PyTorch for one image, each warmed up before."""
    image = mosaic(shape)
    seconds = [], []
    with torch.no_grad():
        for _ in range(rounds + 1):
            for times, call in zip(seconds, (run, reference), strict=True):
                start = time.perf_counter()
                call(image)
                times.append(time.perf_counter() - start)
    return tuple(float(np.median(times[1:])) for times in seconds)
