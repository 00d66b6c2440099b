"""Backbones, registered with mmengine."""

from .inline_deit import InLineDeiT
from .inline_pvt import InLinePVT
from .inline_swin import InLineSwin

__all__ = ['InLineDeiT', 'InLinePVT', 'InLineSwin']
