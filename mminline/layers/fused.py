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
_HOOKS = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear``, fused where that is possible."""
    if _fuses(x, weight, bias):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')
    return F.linear(x, weight, bias)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer and the exact GELU, fused where that is possible."""
    if _fuses(x, weight, bias):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'gelu', [], 'none')
    return F.gelu(F.linear(x, weight, bias))


def _fuses(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    return (
        not torch.is_grad_enabled()
        and runs_eagerly(x)
        and are_plain(x, weight, bias)
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        # oneDNN reads a bias without a look at its stride.
        and (bias is None or bias.is_contiguous())
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
    )


def are_plain(*tensors: Tensor | None) -> bool:
    """Whether tensors are dense and on a CPU.

    One of another kind (quantised, sharded, sparse) brings an F.linear of its own.
    """
    return all(
        type(tensor) in _PLAIN_TENSORS
        and tensor.device.type == 'cpu'
        and tensor.layout == torch.strided
        for tensor in tensors
        if tensor is not None
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
        or torch._C._are_functorch_transforms_active()
        or autocasts(x)
    )


def has_own_hooks(layer: nn.Module) -> bool:
    """Whether somebody waits for this very layer to be called."""
    return any(getattr(layer, name) for name in _HOOKS)


def has_hooks(layer: nn.Module) -> bool:
    """Whether somebody waits for this very layer, or for any layer, to be called."""
    return has_own_hooks(layer) or any(
        getattr(nn.modules.module, f'_global{name}') for name in _HOOKS
    )


def is_unobserved_linear(layer: nn.Module) -> bool:
    """Whether nobody would notice that a layer's weights are used in place of a call.

    A wrapper (LoRA, quantisation) or a hook has to see its layer called.
    """
    return type(layer) is nn.Linear and 'forward' not in vars(layer) and not has_hooks(layer)


def call_linear(layer: nn.Module, x: Tensor) -> Tensor:
    """Call a linear layer, fused where that is possible and nobody would miss the call."""
    return linear(x, layer.weight, layer.bias) if is_unobserved_linear(layer) else layer(x)
