"""The maths of the layers with explicit weights: slow, obvious, the oracle of the tests."""

import torch
import torch.nn.functional as F
from torch import Tensor


def inline_weights(q_BNLD: Tensor, k_BNMD: Tensor, scale: float) -> Tensor:
    """Weights of injective linear attention, ``(B, N, L, M)`` (arXiv:2412.06590, Eq. 5)."""
    num_keys = k_BNMD.shape[-2]
    scores_BNLM = scale / num_keys * q_BNLD @ k_BNMD.transpose(-2, -1)
    return scores_BNLM - scores_BNLM.mean(dim=-1, keepdim=True) + 1 / num_keys


def linear_weights(q_BNLD: Tensor, k_BNMD: Tensor) -> Tensor:
    """Weights of plain linear attention, divided by their sum, ``(B, N, L, M)``."""
    scores_BNLM = q_BNLD @ k_BNMD.transpose(-2, -1)
    return scores_BNLM / (scores_BNLM.sum(dim=-1, keepdim=True) + 1e-6)


def softmax_weights(
    q_BNLD: Tensor, k_BNMD: Tensor, scale: float, bias_NLM: Tensor | None = None
) -> Tensor:
    """Weights of softmax attention, ``(B, N, L, M)``."""
    scores_BNLM = scale * q_BNLD @ k_BNMD.transpose(-2, -1)
    if bias_NLM is not None:
        scores_BNLM = scores_BNLM + bias_NLM
    return scores_BNLM.softmax(dim=-1)


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
