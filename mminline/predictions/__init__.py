"""Image files, and files of predictions. Needs neither torch nor OpenMMLab."""

from .files import save_classes, save_instances
from .images import find_images, read_image, write_image
from .run_lengths import encode_mask
from .whole_file import check_folder, whole_file

__all__ = [
    'check_folder',
    'encode_mask',
    'find_images',
    'read_image',
    'save_classes',
    'save_instances',
    'whole_file',
    'write_image',
]
