"""Checkpoints: published names to ours, reading without running, loading, downloading."""

from .convert import convert_official, find_backbone, unwrap
from .load import load_pretrained
from .reader import UnsafeCheckpointError
from .schemes import read_checkpoint

__all__ = [
    'UnsafeCheckpointError',
    'convert_official',
    'find_backbone',
    'load_pretrained',
    'read_checkpoint',
    'unwrap',
]
