"""Comparison of attention kinds: one detector or segmentor trained with each of them."""

from .compare import Shapes, compare_attention
from .configs import make_config
from .kinds import KINDS
from .results import print_table

__all__ = ['KINDS', 'Shapes', 'compare_attention', 'make_config', 'print_table']
