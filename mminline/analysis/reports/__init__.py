"""Reports on the attention of models: numbers as tables and files, and a figure of them."""

from .confusion import report_confusion
from .inputs import ModelSource, list_images, model_source, read_sources
from .locality import report_locality
from .maps import report_maps
from .masking import report_masking

__all__ = [
    'ModelSource',
    'list_images',
    'model_source',
    'read_sources',
    'report_confusion',
    'report_locality',
    'report_maps',
    'report_masking',
]
