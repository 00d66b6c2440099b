"""Attention layers, one file a kind: the layer, its explicit weights, how analysis reads it.

A kind is a module called as ``layer(x_BLC, hw_shape)``, registered under its name and built by the
backbones from ``attention=dict(type=NAME, ...)``.
"""

from .angular import AngularAttention
from .efficient import EfficientAttention
from .enhanced import EnhancedLinearAttention
from .focused import FocusedLinearAttention
from .hydra import HydraAttention
from .inline import InLineAttention
from .linear import LinearAttention
from .magnitude_aware import MagnitudeAwareAttention
from .softmax import SoftmaxAttention
from .weights import AttentionWeights

# The kinds that a config can name.
KINDS = (
    InLineAttention,
    SoftmaxAttention,
    LinearAttention,
    HydraAttention,
    EfficientAttention,
    AngularAttention,
    EnhancedLinearAttention,
    FocusedLinearAttention,
    MagnitudeAwareAttention,
)

__all__ = ['KINDS', 'AttentionWeights', *(kind.__name__ for kind in KINDS)]
