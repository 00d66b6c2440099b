"""Attention layers, one file a kind: the layer, its explicit weights, how analysis reads it.

A kind is a module called as ``layer(x_BLC, hw_shape)``, registered under its name and built by the
backbones from ``attention=dict(type=NAME, ...)``.
"""

from .inline import InLineAttention
from .softmax import SoftmaxAttention
from .weights import AttentionWeights

# The kinds that a config can name.
KINDS = (InLineAttention, SoftmaxAttention)

__all__ = ['KINDS', 'AttentionWeights', 'InLineAttention', 'SoftmaxAttention']
