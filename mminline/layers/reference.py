"""The maths of the layers with explicit weights: slow, obvious, the oracle of the tests.

``visible_BNLM`` tells which keys a query may see; without it, all. Weights are those among the
visible keys, as if there were no others, and 0 for the rest.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def inline_weights(
    q_BNLD: Tensor, k_BNMD: Tensor, scale: float, visible_BNLM: Tensor | None = None
) -> Tensor:
    """Weights of injective linear attention, ``(B, N, L, M)`` (arXiv:2412.06590, Eq. 5)."""
    if visible_BNLM is None:
        visible_BNLM = q_BNLD.new_ones(1, 1, 1, k_BNMD.shape[-2])
    visible_BNLM = visible_BNLM.to(q_BNLD.dtype)
    num_keys = visible_BNLM.sum(dim=-1, keepdim=True).clamp(min=1)
    scores_BNLM = scale / num_keys * (q_BNLD @ k_BNMD.transpose(-2, -1))
    mean_BNL1 = (scores_BNLM * visible_BNLM).sum(dim=-1, keepdim=True) / num_keys
    return (scores_BNLM - mean_BNL1 + 1 / num_keys) * visible_BNLM


def linear_weights(q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
    """Weights of plain linear attention, divided by their sum, ``(B, N, L, M)``."""
    scores_BNLM = q_BNLD @ k_BNMD.transpose(-2, -1)
    if visible_BNLM is not None:
        scores_BNLM = scores_BNLM * visible_BNLM
    return scores_BNLM / (scores_BNLM.sum(dim=-1, keepdim=True) + 1e-6)


def softmax_weights(
    q_BNLD: Tensor,
    k_BNMD: Tensor,
    scale: float,
    bias_NLM: Tensor | None = None,
    visible_BNLM: Tensor | None = None,
) -> Tensor:
    """Weights of softmax attention, ``(B, N, L, M)``."""
    scores_BNLM = scale * q_BNLD @ k_BNMD.transpose(-2, -1)
    if bias_NLM is not None:
        scores_BNLM = scores_BNLM + bias_NLM
    if visible_BNLM is None:
        return scores_BNLM.softmax(dim=-1)
    weights_BNLM = scores_BNLM.masked_fill(~visible_BNLM, -torch.inf).softmax(dim=-1)
    # A query that sees nothing has no weights, not undefined ones.
    return weights_BNLM.masked_fill(~visible_BNLM, 0)


def local_residual(v_BLC: Tensor, kernel_BC33: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """The 3x3 step as a sum over the nine neighbours of a zero-padded grid."""
    height, width = hw_shape
    padded = F.pad(v_BLC.unflatten(1, hw_shape), (0, 0, 1, 1, 1, 1))
    out = torch.zeros_like(v_BLC).unflatten(1, hw_shape)
    for dy in range(3):
        for dx in range(3):
            neighbour = padded[:, dy : dy + height, dx : dx + width]
            out = out + neighbour * kernel_BC33[:, None, None, :, dy, dx]
    return out.flatten(1, 2)
