"""Checkpoints: published names to ours, reading without running, loading, downloading."""

from .convert import convert_official, find_backbone, unwrap
from .download import read_checkpoint
from .load import load_pretrained

__all__ = ['convert_official', 'find_backbone', 'load_pretrained', 'read_checkpoint', 'unwrap']
