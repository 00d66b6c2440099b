"""Enhanced linear attention: the ReLU map, and a convolution for what is near.

EfficientViT (arXiv:2205.14756) lends locality to plain linear attention by depth-wise
convolutions elsewhere in its block. A layer of attention alone has them on its values.
"""

from ...registry import MODELS
from .linear import LinearAttention


@MODELS.register_module()
class EnhancedLinearAttention(LinearAttention):
    """ReLU linear attention with a 3x3 convolution, called as ``layer(x_BLC, hw_shape)``.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        drop_rate: Dropout after the output projection.
        init_cfg: As everywhere in OpenMMLab.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        drop_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(embed_dims, num_heads, 'relu', True, drop_rate, init_cfg)
