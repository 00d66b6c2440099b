"""The shipped configs, each read once: mmengine takes seconds over bases of other packages."""

import copy
import functools
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import nn

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / 'configs'
DETECTORS = sorted(path.stem for path in CONFIGS.glob('detection/*.py'))
SEGMENTORS = sorted(path.stem for path in CONFIGS.glob('segmentation/*.py'))
# The configs for the built-in data have recipes of their own and no published weights.
PUBLISHED = [stem for stem in DETECTORS + SEGMENTORS if not stem.endswith('shapes')]


def load(stem: str) -> Config:
    """The config of that name."""
    return copy.deepcopy(_read(stem))


@functools.cache
def _read(stem: str) -> Config:
    (path,) = CONFIGS.glob(f'*/{stem}.py')
    return Config.fromfile(path)


def build(stem: str) -> nn.Module:
    """The model of a config, with initial weights in place of those to be downloaded."""
    config = load(stem)
    init_default_scope(config.default_scope)
    config.model.backbone.init_cfg = None
    torch.manual_seed(0)
    return revert_sync_batchnorm(MODELS.build(config.model))
