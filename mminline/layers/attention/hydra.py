"""Hydra attention: as many heads as channels, with a cosine kernel (arXiv:2209.07484)."""

import torch.nn.functional as F
from torch import Tensor

from ...registry import MODELS
from ..statistics import upcast
from .checks import check_heads
from .whole_map import WholeMapAttention


@MODELS.register_module()
class HydraAttention(WholeMapAttention):
    """Hydra attention, called as ``layer(x_BLC, hw_shape)``.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads of the other kinds. Every channel is a head here, so this has no effect.
        local_residual: Whether to add a 3x3 convolution, see ``WholeMapAttention``.
        drop_rate: Dropout after the output projection.
        num_extra_tokens: Tokens in front of the grid.
        init_cfg: As everywhere in OpenMMLab.
    """

    kind = 'hydra'

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        local_residual: bool | None = None,
        drop_rate: float = 0.0,
        num_extra_tokens: int = 0,
        init_cfg: dict | None = None,
    ) -> None:
        check_heads(embed_dims, num_heads)
        super().__init__(
            embed_dims, embed_dims, local_residual, drop_rate, num_extra_tokens, init_cfg
        )

    def map_features(self, x_BNLD: Tensor) -> Tensor:
        """Divide tokens by their length over all channels, which are the heads."""
        return F.normalize(upcast(x_BNLD), dim=1)

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        return hydra_attention(q_BNLD, k_BNMD, v_BNMD)

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        return hydra_weights(q_BNLD, k_BNMD, visible_BNLM)


def hydra_attention(q_BNL1: Tensor, k_BNM1: Tensor, v_BNM1: Tensor) -> Tensor:
    """Mix values by products channel by channel: the cost has no term in squared channels.

    Args:
        q_BNL1: Queries of length 1, each channel a head.
        k_BNM1: Keys, the same.
        v_BNM1: Values, one for each key.
    """
    total_BN11 = (upcast(k_BNM1) * upcast(v_BNM1)).sum(dim=-2, keepdim=True)
    return (upcast(q_BNL1) * total_BN11).to(v_BNM1.dtype)


def hydra_weights(q_BNL1: Tensor, k_BNM1: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
    """Weights of Hydra attention, ``(B, N, L, M)``: products, neither divided nor summing to 1."""
    scores_BNLM = q_BNL1 @ k_BNM1.transpose(-2, -1)
    return scores_BNLM if visible_BNLM is None else scores_BNLM * visible_BNLM
