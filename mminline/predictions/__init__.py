"""Image files, and files of predictions. Needs neither torch nor OpenMMLab."""

from .files import save_classes, save_instances
from .images import find_images, read_image, write_image
from .run_lengths import encode_mask

__all__ = [
    'encode_mask',
    'find_images',
    'read_image',
    'save_classes',
    'save_instances',
    'write_image',
]
