"""Linear layers on a CPU in one pass over memory, with their bias and a GELU behind them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def linear(layer: nn.Linear, x: Tensor, one_pass: bool) -> Tensor:
    """Run a linear layer, by oneDNN where that is allowed."""
    return product(x, layer.weight, layer.bias, one_pass)


def product(x: Tensor, weight: Tensor, bias: Tensor | None, one_pass: bool) -> Tensor:
    """``F.linear``, by oneDNN where that is allowed: it knows nothing of gradients.

    Nor does it know autocast: in one pass, the type of ``x`` is that of the product.
    """
    if one_pass:
        return torch.ops.mkldnn._linear_pointwise(x, *_cast(x, weight, bias), 'none', [], '')
    return F.linear(x, *_cast(x, weight, bias))


def product_gelu(x: Tensor, weight: Tensor, bias: Tensor | None, one_pass: bool) -> Tensor:
    """``F.linear`` and the exact GELU, by oneDNN where that is allowed."""
    if one_pass:
        return torch.ops.mkldnn._linear_pointwise(x, *_cast(x, weight, bias), 'gelu', [], 'none')
    return F.gelu(F.linear(x, *_cast(x, weight, bias)))


def _cast(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
