"""What models cost and what their attention does."""

from .complexity import Complexity, measure_complexity

__all__ = ['Complexity', 'measure_complexity']
