"""Linear layers on a CPU without passes over memory of their own for bias and GELU.

PyTorch writes the bias to memory, adds the product to it, and reads all of that again for a
GELU. oneDNN, a part of PyTorch, does the three while the numbers are in registers, but knows
nothing of gradients: it serves inference, and forward passes whose backward is written by hand.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _python_dispatch

from .statistics import autocasts

_PLAIN_TENSORS = (Tensor, nn.Parameter)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear``, fused where that is possible."""
    if _fuses(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')
    return F.linear(x, weight, bias)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer and the exact GELU, fused where that is possible."""
    if _fuses(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'gelu', [], 'none')
    return F.gelu(F.linear(x, weight, bias))


def _fuses(x: Tensor, weight: Tensor) -> bool:
    return (
        not torch.is_grad_enabled()
        and runs_eagerly(x)
        and x.device.type == 'cpu'
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        # A tensor of another kind (quantised, sharded) brings an F.linear of its own.
        and type(x) in _PLAIN_TENSORS
        and type(weight) in _PLAIN_TENSORS
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
    )


def runs_eagerly(x: Tensor) -> bool:
    """Whether operations are carried out as they are written, seen by nobody.

    A compiler does its own fusing and a trace can hold known operations alone; counters of FLOPs
    and the like watch for the operations they know; autocast picks a precision for each.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or _python_dispatch._get_current_dispatch_mode() is not None
        or autocasts(x)
    )


def has_hooks(layer: nn.Module) -> bool:
    """Whether somebody waits for this very layer, or for any layer, to be called."""
    every = nn.modules.module
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or every._global_forward_hooks
        or every._global_forward_pre_hooks
    )


def is_unobserved_linear(layer: nn.Module) -> bool:
    """Whether nobody would notice that a layer's weights are used in place of a call.

    A wrapper (LoRA, quantisation) or a hook has to see its layer called.
    """
    return type(layer) is nn.Linear and not has_hooks(layer)


def call_linear(layer: nn.Module, x: Tensor) -> Tensor:
    """Call a linear layer, fused where that is possible and nobody would miss the call."""
    return linear(x, layer.weight, layer.bias) if is_unobserved_linear(layer) else layer(x)
