"""Data sets of mminline: Shapes, drawn from a seed."""

from .shapes import (
    CLASSES,
    LEVELS,
    PALETTE,
    SEMANTIC_CLASSES,
    SEMANTIC_PALETTE,
    SPLITS,
    Scene,
    draw_scene,
    write_shapes,
)

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
