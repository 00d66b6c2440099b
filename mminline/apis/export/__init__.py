"""Models as files: ONNX and ``torch.export``, for one size of image or for all."""

from .evaluation import evaluate
from .exporter import ExportedFile, check_request, export_model
from .files import ExportError
from .image_model import choose_part, load_part

__all__ = [
    'ExportError',
    'ExportedFile',
    'check_request',
    'choose_part',
    'evaluate',
    'export_model',
    'load_part',
]
