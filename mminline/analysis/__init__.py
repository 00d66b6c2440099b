"""Cost of models, and measures of their attention."""

from ..layers.attention import AttentionWeights
from .complexity import Complexity, measure_complexity
from .confusion import Confusion, count_confusion
from .hooks import attention_hooks, find_layers, kept_inputs, read_layer
from .locality import Locality, measure_locality
from .maps import WeightMaps, weight_maps
from .masking import Mask, masked_attention

__all__ = [
    'Complexity',
    'Confusion',
    'AttentionWeights',
    'Locality',
    'Mask',
    'WeightMaps',
    'count_confusion',
    'find_layers',
    'kept_inputs',
    'masked_attention',
    'measure_complexity',
    'measure_locality',
    'attention_hooks',
    'read_layer',
    'weight_maps',
]
