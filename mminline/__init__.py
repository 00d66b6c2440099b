"""InLine attention backbones for OpenMMLab: detection and segmentation in linear time."""

from . import checkpoints, compat, config_bases, engine, execution, models
from .version import __version__

__all__ = [
    '__version__',
    'checkpoints',
    'compat',
    'config_bases',
    'engine',
    'execution',
    'models',
]
