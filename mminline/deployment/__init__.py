"""Exported ONNX files on images, with numpy, OpenCV and onnxruntime only."""

from .masks import paste_masks
from .onnx_model import Instances, OnnxModel
from .resizing import resize

__all__ = ['Instances', 'OnnxModel', 'paste_masks', 'resize']
