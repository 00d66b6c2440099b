"""Models on the images, folders and videos of a user: files in, pictures and predictions out."""

from .class_maps import assist, write_class_map
from .images import infer_images
from .options import check_options, writes_class_map
from .videos import infer_video, is_video

__all__ = [
    'assist',
    'check_options',
    'infer_images',
    'infer_video',
    'is_video',
    'write_class_map',
    'writes_class_map',
]
