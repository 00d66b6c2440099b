"""Models as files: ONNX and ``torch.export``, for one size of image or for all."""

from .exporter import ExportedFile, export_model
from .files import ExportError

__all__ = ['ExportError', 'ExportedFile', 'export_model']
