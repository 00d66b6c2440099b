"""Bring single images through the test pipeline of a config."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import Compose
from mmengine.config import Config
from mmengine.registry import init_default_scope

from .config import get_test_dataset


def build_test_pipeline(
    config: Config, full_size: bool = False
) -> Callable[[str | Path | np.ndarray], dict]:
    """Build what a config does with a test image of which no truth is known.

    Args:
        config: The config.
        full_size: Whether images keep their own resolution.

    Returns:
        A function of an image file, or of pixels (height, width, channel) as OpenCV reads them,
        that returns ``inputs`` and ``data_samples``.
    """
    init_default_scope(config.get('default_scope', 'mmengine'))
    load, *steps = [
        _keep_size(step) if full_size and step['type'].endswith('Resize') else step
        for step in get_test_dataset(config).pipeline
        if not step['type'].endswith('Annotations')
    ]
    read_file = Compose([load, *steps])
    read_pixels = Compose([dict(load, type='LoadImageFromNDArray'), *steps])

    def prepare(image: str | Path | np.ndarray) -> dict:
        if isinstance(image, np.ndarray):
            check_pixels(image)
            with _explained(f'an image of {image.shape[1]} x {image.shape[0]} px'):
                return read_pixels(dict(img=image, img_id=0))
        with _explained(str(image)):
            return read_file(dict(img_path=str(image), img_id=0))

    return prepare


def check_pixels(image_HWC: np.ndarray) -> None:
    """Say what an image has to be, should it be something else."""
    if image_HWC.ndim != 3 or 0 in image_HWC.shape:
        raise ValueError(
            f'an image has to have the shape (height, width, channels), got {image_HWC.shape}'
        )


@contextlib.contextmanager
def _explained(image: str) -> Iterator[None]:
    """Say in a sentence why OpenCV refuses an image."""
    try:
        yield
    except cv2.error as error:
        reason = error.err
        if error.func == 'resize':
            reason = 'resized, its shorter side would be less than 1 px'
        raise ValueError(f'{image} cannot go through the test pipeline: {reason}') from error


def _keep_size(resize: dict) -> dict:
    """Resize by 1: later steps and models of mmdet want to know the factor."""
    return dict(type=resize['type'], scale_factor=1.0, keep_ratio=True)
