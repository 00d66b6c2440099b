"""InLine attention backbones for OpenMMLab: detection and segmentation in linear time."""

from . import checkpoints, compat, engine, execution, models
from .models import InLineDeiT, InLinePVT, InLineSwin
from .version import __version__

__all__ = [
    'InLineDeiT',
    'InLinePVT',
    'InLineSwin',
    '__version__',
    'checkpoints',
    'compat',
    'engine',
    'execution',
    'models',
]
