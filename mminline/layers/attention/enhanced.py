"""Enhanced linear attention: the ReLU map, and a convolution for what is near.

EfficientViT (arXiv:2205.14756) adds depth-wise convolutions to plain linear attention, in other
parts of its block. A layer of attention alone can have one on its values.
"""

from ...registry import MODELS
from .linear import LinearAttention


@MODELS.register_module()
class EnhancedLinearAttention(LinearAttention):
    """ReLU linear attention with a 3x3 convolution, called as ``layer(x_BLC, hw_shape)``.

    Takes the arguments of ``LinearAttention``.
    """

    convolves = True
