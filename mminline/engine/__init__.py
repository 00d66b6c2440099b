"""Training and testing: configs of runs, processes, resuming, learning rates by layer.

Importing this package registers the optimizer constructor and wrapper, and the hook; the rest is
imported by name, such as ``from mminline.engine.runs import train``.
"""

from .amp import BFloat16OptimWrapper
from .layer_decay import InLineLayerDecayConstructor
from .padding import IgnorePaddingHook

__all__ = ['BFloat16OptimWrapper', 'IgnorePaddingHook', 'InLineLayerDecayConstructor']
