"""InLine attention backbones for OpenMMLab: detection and segmentation in linear time."""

from . import checkpoints, compat, engine, execution, models
from .execution import spatial_parallel
from .version import __version__

__all__ = [
    '__version__',
    'checkpoints',
    'compat',
    'engine',
    'execution',
    'models',
    'spatial_parallel',
]
