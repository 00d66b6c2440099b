"""Sums over tokens, in float32 at least.

Over the tens of thousands of tokens of a detection image they overflow float16 and lose their
digits in bfloat16.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor


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
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if traced or autocasts(x_BLC):
        return _values_and_covariance(x_BLC, x_mean_B1C, v_weight, v_bias)
    return _ValuesAndCovariance.apply(x_BLC, x_mean_B1C, v_weight, v_bias)


def _values_and_covariance(
    x_BLC: Tensor, x_mean_B1C: Tensor, v_weight: Tensor, v_bias: Tensor
) -> tuple[Tensor, Tensor]:
    v_BLC = F.linear(x_BLC, v_weight, v_bias)
    with full_precision(x_BLC):
        # Without centring the difference of two large numbers would cost digits. Tokens, not
        # values: those of half precision come from rounded weights and miss their exact mean.
        centred_BLC = upcast(x_BLC) - x_mean_B1C
        return v_BLC, centred_BLC.transpose(1, 2) @ upcast(v_BLC) / x_BLC.shape[1]


class _ValuesAndCovariance(torch.autograd.Function):
    """``_values_and_covariance`` with a backward in place, which keeps no centred tokens."""

    @staticmethod
    def forward(ctx, x_BLC, x_mean_B1C, v_weight, v_bias):
        v_BLC, covariance_BCC = _values_and_covariance(x_BLC, x_mean_B1C, v_weight, v_bias)
        ctx.save_for_backward(x_BLC, x_mean_B1C, v_BLC, v_weight, v_bias)
        return v_BLC, covariance_BCC

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
