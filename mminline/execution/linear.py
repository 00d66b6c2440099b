"""Linear layers on a CPU in one pass over memory, with their bias and a GELU behind them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def linear(layer: nn.Linear, x: Tensor, one_pass: bool) -> Tensor:
    """Run a linear layer, by oneDNN where that is allowed."""
    return product(x, layer.weight, layer.bias, one_pass)


def product(x: Tensor, weight: Tensor, bias: Tensor | None, one_pass: bool) -> Tensor:
    """``F.linear``, by oneDNN where that is allowed: it knows nothing of gradients."""
    if one_pass:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')
    return F.linear(x, weight, bias)


def product_gelu(x: Tensor, weight: Tensor, bias: Tensor | None, one_pass: bool) -> Tensor:
    """``F.linear`` and the exact GELU, by oneDNN where that is allowed."""
    if one_pass:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'gelu', [], 'none')
    return F.gelu(F.linear(x, weight, bias))
