"""Exported ONNX files on images, with numpy, OpenCV and onnxruntime only."""

from .images import find_images, read_image, write_image
from .masks import paste_masks
from .onnx_model import Instances, OnnxModel
from .resizing import resize

__all__ = [
    'Instances',
    'OnnxModel',
    'find_images',
    'paste_masks',
    'read_image',
    'resize',
    'write_image',
]
