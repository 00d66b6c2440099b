"""Backbones, registered with mmengine."""

from .inline_pvt import InLinePVT
from .inline_swin import InLineSwin

__all__ = ['InLinePVT', 'InLineSwin']
