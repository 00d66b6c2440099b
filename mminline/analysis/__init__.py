"""What models cost and what their attention does."""

from .complexity import Complexity, measure_complexity
from .confusion import Confusion, count_confusion
from .explicit import ExplicitAttention
from .locality import Locality, measure_locality
from .maps import WeightMaps, weight_maps
from .masking import Mask, masked_attention
from .watch import find_layers, watch

__all__ = [
    'Complexity',
    'Confusion',
    'ExplicitAttention',
    'Locality',
    'Mask',
    'WeightMaps',
    'count_confusion',
    'find_layers',
    'masked_attention',
    'measure_complexity',
    'measure_locality',
    'watch',
    'weight_maps',
]
