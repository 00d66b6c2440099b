"""Models to be named in configs."""

from .backbones import InLineDeiT, InLinePVT, InLineSwin

__all__ = ['InLineDeiT', 'InLinePVT', 'InLineSwin']
