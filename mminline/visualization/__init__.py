"""Pictures of predictions, drawn by OpenCV. Needs neither torch nor OpenMMLab."""

from .classes import draw_classes
from .instances import draw_instances

__all__ = ['draw_classes', 'draw_instances']
