"""Plain linear attention: weights divided by their sum (arXiv:2006.16236)."""

from torch import Tensor

from ...registry import MODELS
from ..functional import FEATURE_MAPS, NON_NEGATIVE_FEATURE_MAPS, linear_attention
from .inline import linear_weights
from .whole_map import WholeMapAttention


@MODELS.register_module()
class LinearAttention(WholeMapAttention):
    """Plain linear attention, called as ``layer(x_BLC, hw_shape)``.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        feature_map: Map of queries and keys, without negative values: 'relu' or 'exp'.
        local_residual: Whether to add a 3x3 convolution, see ``WholeMapAttention``.
        drop_rate: Dropout after the output projection.
        num_extra_tokens: Tokens in front of the grid.
        init_cfg: As everywhere in OpenMMLab.
    """

    kind = 'linear'

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        feature_map: str = 'relu',
        local_residual: bool | None = None,
        drop_rate: float = 0.0,
        num_extra_tokens: int = 0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(
            embed_dims, num_heads, local_residual, drop_rate, num_extra_tokens, init_cfg
        )
        if feature_map not in NON_NEGATIVE_FEATURE_MAPS:
            raise ValueError(
                f'feature_map has to be one of {list(NON_NEGATIVE_FEATURE_MAPS)}, '
                f'got {feature_map=}'
            )
        self.feature_map = feature_map

    def map_features(self, x_BNLD: Tensor) -> Tensor:
        return FEATURE_MAPS[self.feature_map](x_BNLD)

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        return linear_attention(q_BNLD, k_BNMD, v_BNMD)

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        return linear_weights(q_BNLD, k_BNMD, visible_BNLM)
