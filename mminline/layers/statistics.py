"""Sums over tokens, in float32 at least.

Over the tens of thousands of tokens of a detection image they overflow float16 and lose their
digits in bfloat16.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(x: Tensor) -> AbstractContextManager:
    """Context in which autocast leaves the products of float32 tensors alone."""
    device = x.device.type
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


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
