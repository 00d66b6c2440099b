"""Models and images to look into, for detectors and segmentors alike."""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.device import get_device
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from torch import Tensor, nn

import _launch
from mminline.checkpoints.reader import read_file

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp')


class Subject(NamedTuple):
    """A model to look into."""

    name: str
    config: str
    checkpoint: str | None = None


def parse_subject(text: str) -> Subject:
    """Read ``NAME=CONFIG`` or ``NAME=CONFIG,CHECKPOINT``."""
    name, equals, files = text.partition('=')
    config, _, checkpoint = files.partition(',')
    if not (name and equals and config):
        raise argparse.ArgumentTypeError(f'has to be NAME=CONFIG[,CHECKPOINT], got {text!r}')
    return Subject(name, config, checkpoint or None)


def read_config(subject: Subject, cfg_options: dict, work_dir: Path) -> Config:
    """The config of a model, with the options of the command line."""
    checkpoint = subject.checkpoint
    if checkpoint and '://' not in checkpoint and not Path(checkpoint).is_file():
        sys.exit(f'There is no checkpoint {checkpoint}.')
    config = _launch.load_config(
        argparse.Namespace(
            config=subject.config,
            cfg_options=cfg_options,
            work_dir=str(work_dir),
            launcher='none',
            local_rank=None,
            amp=False,
        )
    )
    if checkpoint:
        # It has all weights: do not fetch those that training began with.
        config.model.pop('pretrained', None)
        if 'backbone' in config.model:
            config.model.backbone.init_cfg = None
    init_default_scope(config.get('default_scope', 'mmengine'))
    return config


def load_model(subject: Subject, config: Config) -> nn.Module:
    """The model with its weights, ready to run."""
    model = revert_sync_batchnorm(MODELS.build(config.model))
    give_weights(model, subject, config)
    return model.to(get_device()).eval()


def give_weights(model: nn.Module, subject: Subject, config: Config) -> None:
    """Fill a model: with the checkpoint, or with what its training starts from."""
    if subject.checkpoint:
        fill(model, subject.checkpoint)
    else:
        print(f'{subject.name}: no checkpoint, so the weights are those that training starts from')
        with _launch.readable_errors(config):
            model.init_weights()


def fill(model: nn.Module, checkpoint: str) -> None:
    """Load a checkpoint, and end the program unless it fills the whole model."""
    if '://' in checkpoint:
        weights = load_checkpoint(model, checkpoint, map_location='cpu')
    else:
        try:
            weights = read_file(checkpoint)
        except ValueError as error:
            sys.exit(str(error))
    weights = weights.get('state_dict', weights)
    weights = {name.removeprefix('module.'): value for name, value in weights.items()}
    wanted = model.state_dict()
    unfit = [
        name
        for name, value in wanted.items()
        if name not in weights or weights[name].shape != value.shape
    ]
    if unfit:
        sys.exit(
            f'{checkpoint} has to hold the whole model of the config, and {len(unfit)} of its '
            f'{len(wanted)} tensors are not there or of another shape: {", ".join(unfit[:5])}, '
            '... Is it of another config?'
        )
    model.load_state_dict(weights, strict=False)


def list_images(folder: str, limit: int | None) -> list[Path]:
    """Images of a folder in order of their names, or one image."""
    path = Path(folder)
    if path.is_file():
        return [path]
    if not path.is_dir():
        sys.exit(f'There is no folder {folder} to take images from.')
    images = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        sys.exit(f'{folder} has no images ({", ".join(IMAGE_SUFFIXES)}).')
    return images[:limit]


class Picture(NamedTuple):
    """An image, and what the model is given of it."""

    path: Path
    inputs_1CHW: Tensor
    image_HWC: np.ndarray  # as in the file, RGB
    extent: tuple[float, float]  # width and height of the input, padding too, in its pixels


def read_picture(model: nn.Module, config: Config, path: Path) -> Picture:
    """Bring an image through the config's test pipeline, annotations left out."""
    dataset = config.test_dataloader.dataset
    while 'pipeline' not in dataset:  # wrapped
        dataset = dataset.dataset
    steps = [step for step in dataset.pipeline if 'Annotations' not in step['type']]
    image_HWC = mmcv.imread(str(path), channel_order='rgb')
    if image_HWC is None:
        sys.exit(f'{path} cannot be read as an image.')
    packed = Compose(steps)(dict(img_path=str(path), img_id=0))
    batch = dict(inputs=[packed['inputs']], data_samples=[packed['data_samples']])
    inputs_1CHW = model.data_preprocessor(batch, False)['inputs']
    scale = packed['data_samples'].metainfo.get('scale_factor', (1.0, 1.0))
    height, width = inputs_1CHW.shape[-2:]
    return Picture(path, inputs_1CHW, image_HWC, (width / scale[0], height / scale[1]))


@torch.no_grad()
def run(model: nn.Module, picture: Picture) -> None:
    """Run all of the model that has attention in it: backbone and neck."""
    model.extract_feat(picture.inputs_1CHW)
