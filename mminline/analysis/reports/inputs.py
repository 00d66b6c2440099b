"""Models and images that reports are made of, of detectors and segmentors alike."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import mmcv
import numpy as np
from mmengine.config import Config
from mmengine.utils import track_iter_progress
from torch import nn

from ...apis import build_test_pipeline, init_model, read_config
from ...engine.data import check_checkpoint
from ..model_input import ModelInput, prepare_input

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp')


class ModelSource(NamedTuple):
    """A model to report on.

    Args:
        name: Name of the model in tables and figures.
        config: Config, or its file.
        checkpoint: File or address of its weights; None for those that training starts from.
    """

    name: str
    config: str | Path | Config
    checkpoint: str | Path | None = None

    def load(self) -> nn.Module:
        """Build the model with its weights, ready to run."""
        if self.checkpoint is None:
            print(f'{self.name}: no checkpoint, so the weights are those that training starts from')
        return init_model(self.config, self.checkpoint, pretrained=True)


def model_source(text: str) -> ModelSource:
    """Read ``NAME=CONFIG`` or ``NAME=CONFIG,CHECKPOINT``, as a type of argparse."""
    name, equals, files = text.partition('=')
    config, _, checkpoint = files.partition(',')
    if not (name and equals and config):
        raise argparse.ArgumentTypeError(f'has to be NAME=CONFIG[,CHECKPOINT], got {text!r}')
    return ModelSource(name, config, checkpoint or None)


def read_sources(models: Sequence[ModelSource], cfg_options: dict) -> list[ModelSource]:
    """Read the configs of models, after a look at whether all of them can be loaded.

    Args:
        models: Models with the files of their configs.
        cfg_options: Settings to change in every config, by dotted name.
    """
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ValueError(f'models have to have different names, got {", ".join(names)}: see --name')
    for model in models:
        if model.checkpoint:
            check_checkpoint(model.checkpoint)
    return [model._replace(config=read_config(model.config, cfg_options)) for model in models]


def list_images(folder: str | Path, limit: int | None = None) -> list[Path]:
    """List images of a folder in order of their names, or one image.

    Args:
        folder: The folder, or an image.
        limit: How many to take at most.
    """
    path = Path(folder)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f'there is no folder {folder} to take images from')
    images = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        raise ValueError(f'{folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
    return images[:limit]


class InputImage(NamedTuple):
    """An image file, and what a model is given of it."""

    path: Path
    image_HWC: np.ndarray  # as in the file, RGB
    input: ModelInput


def read_images(model: nn.Module, paths: Sequence[Path]) -> Iterator[InputImage]:
    """Bring images through the test pipeline of a model's config, with a progress bar."""
    prepare = build_test_pipeline(model.cfg)
    for path in track_iter_progress(list(paths)):
        image_HWC = mmcv.imread(str(path))
        if image_HWC is None:
            raise ValueError(f'{path} cannot be read as an image')
        yield InputImage(path, mmcv.bgr2rgb(image_HWC), prepare_input(model, prepare(path)))
    print()
