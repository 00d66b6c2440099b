"""Comparison of attention kinds: one segmentor trained on Shapes with each of them."""

from .configs import KINDS, make_config
from .results import print_table
from .runs import compare_attention

__all__ = ['KINDS', 'compare_attention', 'make_config', 'print_table']
