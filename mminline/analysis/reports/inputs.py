"""Models and images that reports are made of, of detectors and segmentors alike."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.utils import track_iter_progress
from torch import Tensor, nn

from ...apis import build_test_pipeline, init_model

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
    inputs_1CHW: Tensor
    image_HWC: np.ndarray  # as in the file, RGB
    extent: tuple[float, float]  # width and height of the input, padding too, in its pixels


def read_images(model: nn.Module, paths: Sequence[Path]) -> Iterator[InputImage]:
    """Bring images through the test pipeline of a model's config, with a progress bar."""
    prepare = build_test_pipeline(model.cfg)
    for path in track_iter_progress(list(paths)):
        image_HWC = mmcv.imread(str(path))
        if image_HWC is None:
            raise ValueError(f'{path} cannot be read as an image')
        packed = prepare(path)
        batch = dict(inputs=[packed['inputs']], data_samples=[packed['data_samples']])
        inputs_1CHW = model.data_preprocessor(batch, False)['inputs']
        scale = packed['data_samples'].metainfo.get('scale_factor', (1.0, 1.0))
        height, width = inputs_1CHW.shape[-2:]
        extent = (width / scale[0], height / scale[1])
        yield InputImage(path, inputs_1CHW, mmcv.bgr2rgb(image_HWC), extent)
    print()


@torch.no_grad()
def run_features(model: nn.Module, image: InputImage) -> None:
    """Run all of a model that has attention in it: backbone and neck."""
    model.extract_feat(image.inputs_1CHW)
