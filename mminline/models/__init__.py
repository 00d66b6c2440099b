"""Models to be named in configs."""

from .backbones import InLinePVT, InLineSwin

__all__ = ['InLinePVT', 'InLineSwin']
