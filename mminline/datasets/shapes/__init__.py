"""Shapes: a data set drawn from a seed, for detection and segmentation.

mmdet's ``CocoDataset`` and mmseg's ``BaseSegDataset`` read it with the names below as metainfo.
"""

from .figures import CLASSES
from .levels import LEVELS
from .scenes import SPLITS, Scene, draw_scene
from .writer import write_shapes

PALETTE = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (213, 94, 0),
    (204, 121, 167),
)
SEMANTIC_CLASSES = ('background', *CLASSES)
SEMANTIC_PALETTE = ((40, 40, 40), *PALETTE)

__all__ = [
    'CLASSES',
    'LEVELS',
    'PALETTE',
    'SEMANTIC_CLASSES',
    'SEMANTIC_PALETTE',
    'SPLITS',
    'Scene',
    'draw_scene',
    'write_shapes',
]
