"""Layers of the InLine backbones, from pure functions to blocks.

Tensors end in their shape: B batch (or batch x windows), L tokens, M keys, N heads,
D channels a head, C channels, H W grid; digits are sizes. A grid is ``hw_shape``.
"""

from .attention import (
    AngularAttention,
    AttentionWeights,
    EfficientAttention,
    EnhancedLinearAttention,
    FocusedLinearAttention,
    HydraAttention,
    InLineAttention,
    LinearAttention,
    MagnitudeAwareAttention,
    SoftmaxAttention,
)
from .block import Block
from .embed import PatchEmbed, PatchMerging, resize_columns, resize_position, resize_rows
from .functional import (
    folded_inline_attention,
    inline_attention,
    linear_attention,
    local_residual,
)
from .mlp import MLP

__all__ = [
    'MLP',
    'AngularAttention',
    'AttentionWeights',
    'Block',
    'EfficientAttention',
    'EnhancedLinearAttention',
    'FocusedLinearAttention',
    'HydraAttention',
    'InLineAttention',
    'LinearAttention',
    'MagnitudeAwareAttention',
    'PatchEmbed',
    'PatchMerging',
    'SoftmaxAttention',
    'folded_inline_attention',
    'inline_attention',
    'linear_attention',
    'local_residual',
    'resize_columns',
    'resize_position',
    'resize_rows',
]
