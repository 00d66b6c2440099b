"""Multiply-adds and parameters of the model of a config."""

from pathlib import Path

from ..apis import init_model, read_config
from .complexity import Complexity, measure_complexity

# Height and width of the image that the literature counts with.
USUAL_SHAPES = {'mmdet': (800, 1280), 'mmseg': (512, 2048)}


def measure_config(
    path: str | Path, hw_shape: tuple[int, int] | None = None
) -> tuple[Complexity, tuple[int, int]]:
    """Measure the model of a config; return its cost, and the shape that it was measured at.

    Args:
        path: The config file.
        hw_shape: Height and width of the image; None for the usual ones of detectors and
            segmentors.
    """
    config = read_config(path)
    hw_shape = hw_shape or USUAL_SHAPES[config.default_scope]
    return measure_complexity(init_model(config, device='cpu', fast=False), hw_shape), hw_shape
