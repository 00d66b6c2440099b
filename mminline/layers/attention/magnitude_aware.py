"""Magnitude-aware linear attention, MALA: sharper for longer queries (arXiv:2507.00698)."""

import torch.nn.functional as F
from torch import Tensor

from ...registry import MODELS
from ..functional import inline_attention
from ..statistics import full_precision, token_mean, upcast
from .whole_map import WholeMapAttention

# Least sum of scores; a query that all keys are orthogonal to would divide by zero.
LEAST = 1e-6


@MODELS.register_module()
class MagnitudeAwareAttention(WholeMapAttention):
    """Magnitude-aware linear attention, called as ``layer(x_BLC, hw_shape)``.

    Takes the arguments of ``WholeMapAttention``.
    """

    kind = 'magnitude-aware'
    convolves = True

    def map_features(self, x_BNLD: Tensor) -> Tensor:
        return F.elu(upcast(x_BNLD)) + 1

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        return magnitude_aware_attention(q_BNLD, k_BNMD, v_BNMD, self.scale)

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        return magnitude_aware_weights(q_BNLD, k_BNMD, self.scale, visible_BNLM)


def magnitude_aware_attention(
    q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor, scale: float
) -> Tensor:
    """Mix values by ``beta_i s_ij - gamma_i``, in time linear in tokens.

    With ``s_ij = scale / M * <q_i, k_j>`` and its sum ``z_i``, ``beta_i = 1 + 1 / z_i`` and
    ``gamma_i = z_i / M``. That is InLine attention of the query ``beta_i q_i``: the weights are
    ``beta_i (s_ij - mean_j(s_ij)) + 1 / M``.

    Args:
        q_BNLD: Queries, after a feature map without negative values.
        k_BNMD: Keys, after the same.
        v_BNMD: Values, one for each key.
        scale: Factor on the query-key product, usually ``D ** -0.5``.
    """
    with full_precision(v_BNMD):
        q_BNLD = upcast(q_BNLD)
        sum_BNL1 = scale * q_BNLD @ token_mean(k_BNMD).transpose(-2, -1)
        q_BNLD = q_BNLD * (1 + 1 / sum_BNL1.clamp(min=LEAST))
    return inline_attention(q_BNLD, k_BNMD, v_BNMD, scale)


def magnitude_aware_weights(
    q_BNLD: Tensor, k_BNMD: Tensor, scale: float, visible_BNLM: Tensor | None = None
) -> Tensor:
    """Weights of magnitude-aware linear attention, ``(B, N, L, M)``."""
    if visible_BNLM is None:
        visible_BNLM = q_BNLD.new_ones(1, 1, 1, k_BNMD.shape[-2])
    visible_BNLM = visible_BNLM.to(q_BNLD.dtype)
    num_keys = visible_BNLM.sum(dim=-1, keepdim=True).clamp(min=1)
    scores_BNLM = scale / num_keys * (q_BNLD @ k_BNMD.transpose(-2, -1)) * visible_BNLM
    sum_BNL1 = scores_BNLM.sum(dim=-1, keepdim=True)
    beta_BNL1 = 1 + 1 / sum_BNL1.clamp(min=LEAST)
    # The sum over the keys, but for sums below the least.
    gamma_BNL1 = (beta_BNL1 * sum_BNL1 - 1) / num_keys
    return (beta_BNL1 * scores_BNLM - gamma_BNL1) * visible_BNLM
