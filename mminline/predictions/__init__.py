"""Files of predictions. Needs neither torch nor OpenMMLab."""

from .files import save_classes, save_instances
from .run_lengths import encode_mask

__all__ = ['encode_mask', 'save_classes', 'save_instances']
