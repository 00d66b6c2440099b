"""Sums over tokens, in float32 at least.

Over the tens of thousands of tokens of a detection image they overflow float16 and lose their
digits in bfloat16.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

# Tokens times channels of a chunk: 2 MB in float32.
CHUNK_VALUES = 1 << 19


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on for the device of a tensor; some devices do not know it."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def full_precision(x: Tensor) -> AbstractContextManager:
    """Context in which autocast leaves the products of float32 tensors alone."""
    return torch.autocast(x.device.type, enabled=False) if autocasts(x) else nullcontext()


def upcast(x: Tensor) -> Tensor:
    """Widen half precision to float32; float32 and float64 stay as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def token_mean(x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Average over tokens, the second last dimension, which is kept.

    Args:
        x: Tokens, ``(..., L, C)``.
        valid: 1 for tokens that count, 0 for padding, broadcastable to ``x``.
    """
    x = upcast(x)
    if valid is None:
        return x.mean(dim=-2, keepdim=True)
    return (x * valid).sum(dim=-2, keepdim=True) / upcast(valid).sum(dim=-2, keepdim=True)


def values_and_covariance(
    x_BLC: Tensor, x_mean_B1C: Tensor, v_weight: Tensor, v_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Values of the tokens, and the covariance of the channels of tokens and values."""
    # Autocast picks a precision for each product, a compiler does its own bookkeeping, and a
    # trace with a Python function in it cannot be saved: all better off with the plain form.
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or autocasts(x_BLC):
        v_BLC = F.linear(x_BLC, v_weight, v_bias)
        with full_precision(x_BLC):
            return v_BLC, _covariance_part(x_BLC, x_mean_B1C, v_BLC) / x_BLC.shape[1]
    return _ValuesAndCovariance.apply(x_BLC, x_mean_B1C, v_weight, v_bias)


def _covariance_part(x_BLC: Tensor, x_mean_B1C: Tensor, v_BLC: Tensor) -> Tensor:
    """Sum of the products of centred tokens and values."""
    # Without centring the difference of two large numbers would cost digits. Tokens, not
    # values: those of half precision come from rounded weights and miss their exact mean.
    return (upcast(x_BLC) - x_mean_B1C).transpose(1, 2) @ upcast(v_BLC)


class _ValuesAndCovariance(torch.autograd.Function):
    """``values_and_covariance`` without a second copy of the tokens, there and on the way back."""

    @staticmethod
    def forward(ctx, x_BLC, x_mean_B1C, v_weight, v_bias):
        v_BLC = F.linear(x_BLC, v_weight, v_bias)
        num_tokens = x_BLC.shape[1]
        # Centred tokens of one chunk stay in a CPU's cache; a GPU prefers one large product.
        on_cpu = x_BLC.device.type == 'cpu'
        chunk = max(CHUNK_VALUES // x_BLC.shape[2], 1) if on_cpu else num_tokens
        covariance_BCC = sum(
            _covariance_part(x_part, x_mean_B1C, v_part)
            for x_part, v_part in zip(x_BLC.split(chunk, 1), v_BLC.split(chunk, 1), strict=True)
        )
        ctx.save_for_backward(x_BLC, x_mean_B1C, v_BLC, v_weight, v_bias)
        return v_BLC, covariance_BCC / num_tokens

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v_grad_BLC, covariance_grad_BCC):
        x_BLC, x_mean_B1C, v_BLC, v_weight, v_bias = ctx.saved_tensors
        token_grad_BCC = (covariance_grad_BCC / x_BLC.shape[1]).to(x_BLC.dtype)
        mean_B1C = x_mean_B1C.to(x_BLC.dtype)
        # All that reaches the values: directly, and through the covariance.
        v_grad_BLC = torch.baddbmm(v_grad_BLC, x_BLC, token_grad_BCC)
        v_grad_BLC -= mean_B1C @ token_grad_BCC
        x_grad_BLC = v_grad_BLC @ v_weight
        x_grad_BLC.baddbmm_(v_BLC, token_grad_BCC.transpose(1, 2))
        v_mean_B1C = F.linear(mean_B1C, v_weight, v_bias).to(x_mean_B1C.dtype)
        x_mean_grad_B1C = -v_mean_B1C @ covariance_grad_BCC.transpose(1, 2)
        weight_grad = v_grad_BLC.flatten(0, 1).t() @ x_BLC.flatten(0, 1)
        return x_grad_BLC, x_mean_grad_B1C, weight_grad, v_grad_BLC.sum(dim=(0, 1))
