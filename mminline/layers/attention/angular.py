"""Linear angular attention: the linear part of a similarity by angles (arXiv:2211.10526)."""

import math

import torch.nn.functional as F
from torch import Tensor

from ...registry import MODELS
from ..statistics import full_precision, token_mean, upcast
from .whole_map import WholeMapAttention


@MODELS.register_module()
class AngularAttention(WholeMapAttention):
    """Linear angular attention, called as ``layer(x_BLC, hw_shape)``.

    The similarity ``1 - angle / pi`` is ``1/2 + <q, k> / pi`` for queries and keys of length 1,
    and terms of higher order. Those are left to the convolution.

    Takes the arguments of ``WholeMapAttention``.
    """

    kind = 'angular'
    convolves = True

    def map_features(self, x_BNLD: Tensor) -> Tensor:
        return F.normalize(upcast(x_BNLD), dim=-1)

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        return angular_attention(q_BNLD, k_BNMD, v_BNMD)

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        return angular_weights(q_BNLD, k_BNMD, visible_BNLM)


def angular_attention(q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
    """Mix values by ``1/2 + <q, k> / pi``, divided by its sum, in time linear in tokens.

    Args:
        q_BNLD: Queries of length 1.
        k_BNMD: Keys of length 1.
        v_BNMD: Values, one for each key.
    """
    with full_precision(v_BNMD):
        q_BNLD, k_BNMD = upcast(q_BNLD) / math.pi, upcast(k_BNMD)
        product_BNDD = k_BNMD.transpose(-2, -1) @ upcast(v_BNMD) / k_BNMD.shape[-2]
        sums_BNLD = 0.5 * token_mean(v_BNMD) + q_BNLD @ product_BNDD
        divisor_BNL1 = 0.5 + q_BNLD @ token_mean(k_BNMD).transpose(-2, -1)
        return (sums_BNLD / divisor_BNL1).to(v_BNMD.dtype)


def angular_weights(q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
    """Weights of linear angular attention, ``(B, N, L, M)``; none is negative, as pi > 2."""
    scores_BNLM = 0.5 + q_BNLD @ k_BNMD.transpose(-2, -1) / math.pi
    if visible_BNLM is not None:
        scores_BNLM = scores_BNLM * visible_BNLM
    # One visible key is enough for a sum of 0.18.
    return scores_BNLM / scores_BNLM.sum(dim=-1, keepdim=True).clamp(min=0.1)
