"""Models to be named in configs, and what prepares whole ones."""

from .backbones import InLineDeiT, InLinePVT, InLineSwin
from .neck_padding import ignore_padding

__all__ = ['InLineDeiT', 'InLinePVT', 'InLineSwin', 'ignore_padding']
