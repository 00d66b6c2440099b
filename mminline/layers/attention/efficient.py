"""Efficient attention: softmax of queries and of keys, each by itself (arXiv:1812.01243)."""

from torch import Tensor

from ...registry import MODELS
from ..statistics import full_precision, upcast
from .whole_map import WholeMapAttention


@MODELS.register_module()
class EfficientAttention(WholeMapAttention):
    """Efficient attention, called as ``layer(x_BLC, hw_shape)``.

    Takes the arguments of ``WholeMapAttention``.
    """

    kind = 'efficient'

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        return efficient_attention(q_BNLD, k_BNMD, v_BNMD)

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        return efficient_weights(q_BNLD, k_BNMD, visible_BNLM)


def efficient_attention(q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
    """Mix values by D averages of them, of which each query takes its own mean.

    Args:
        q_BNLD: Queries; their softmax over channels picks averages.
        k_BNMD: Keys; the softmax of each channel over tokens makes one average.
        v_BNMD: Values, one for each key.
    """
    with full_precision(v_BNMD):
        averages_BNDD = upcast(k_BNMD).softmax(dim=-2).transpose(-2, -1) @ upcast(v_BNMD)
        return (upcast(q_BNLD).softmax(dim=-1) @ averages_BNDD).to(v_BNMD.dtype)


def efficient_weights(q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
    """Weights of efficient attention, ``(B, N, L, M)``."""
    if visible_BNLM is None:
        return q_BNLD.softmax(dim=-1) @ k_BNMD.softmax(dim=-2).transpose(-2, -1)
    # The softmax over tokens is one over those that a query sees.
    visible_BNLM = visible_BNLM.to(q_BNLD.dtype)
    exp_BNMD = (k_BNMD - k_BNMD.amax(dim=-2, keepdim=True)).exp()
    sums_BNLD = visible_BNLM @ exp_BNMD
    shares_BNLD = q_BNLD.softmax(dim=-1) / sums_BNLD.clamp(min=1e-30)
    return shares_BNLD @ exp_BNMD.transpose(-2, -1) * visible_BNLM
