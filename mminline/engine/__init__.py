"""Training and testing: configs of runs, processes, resuming, learning rates by layer.

Importing this package registers the optimizer constructor; the rest is imported by name, such as
``from mminline.engine.runs import train``.
"""

from .layer_decay import InLineLayerDecayConstructor

__all__ = ['InLineLayerDecayConstructor']
