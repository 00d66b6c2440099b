"""MLP of a block, run in chunks of tokens.

Its hidden channels are the widest tensors of a backbone. On a CPU it takes longer to write them to
memory than to compute them, and to keep them for the backward pass is most of the memory of
training. So tokens go through in chunks whose hidden channels stay in the cache; they are not
kept, but computed once more in the backward pass.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layers import MLP
from . import cache
from .linear import product, product_gelu


def run_mlp(mlp: MLP, x_BLC: Tensor, one_pass: bool) -> Tensor:
    """Run an MLP, in chunks where there are many tokens."""
    parameters = (mlp.fc1.weight, mlp.fc1.bias, mlp.fc2.weight, mlp.fc2.bias)
    hidden_values = x_BLC.shape[:-1].numel() * mlp.fc1.out_features
    # Gradients of weights in half precision would lose digits in sums over chunks; a GPU prefers
    # one large product.
    is_wide = mlp.fc1.weight.dtype in (torch.float32, torch.float64)
    in_chunks = x_BLC.device.type == 'cpu' and is_wide
    if in_chunks and hidden_values > 4 * cache.chunk_values(x_BLC):
        out_LC = _ChunkedMLP.apply(x_BLC.flatten(0, 1), *parameters, one_pass)
        return mlp.drop(out_LC.view_as(x_BLC))
    if one_pass and not torch.is_grad_enabled():
        return mlp.drop(product(product_gelu(x_BLC, *parameters[:2], True), *parameters[2:], True))
    return mlp(x_BLC)


def _plain_form(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor) -> Tensor:
    weight1, bias1, weight2 = (part.to(x.dtype) for part in (weight1, bias1, weight2))
    return F.linear(F.gelu(F.linear(x, weight1, bias1)), weight2)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to a sum, which may be in a wider type."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


class _ChunkedMLP(torch.autograd.Function):
    """MLP of many tokens, ``(L, C)``, of which the hidden channels never leave the cache."""

    @staticmethod
    @torch.amp.custom_fwd(device_type='cpu')
    def forward(ctx, x, weight1, bias1, weight2, bias2, one_pass):
        ctx.save_for_backward(x, weight1, bias1, weight2)
        ctx.one_pass = one_pass
        ctx.chunk = max(cache.chunk_values(x) // len(weight1), 1)
        out = torch.empty_like(x)
        weight1, bias1, weight2, bias2 = (
            part.to(x.dtype) for part in (weight1, bias1, weight2, bias2)
        )
        for x_part, out_part in zip(x.split(ctx.chunk), out.split(ctx.chunk), strict=True):
            hidden = product_gelu(x_part, weight1, bias1, one_pass)
            out_part.copy_(product(hidden, weight2, bias2, one_pass))
        return out

    @staticmethod
    @torch.amp.custom_bwd(device_type='cpu')
    def backward(ctx, out_grad):
        x, weight1, bias1, weight2 = ctx.saved_tensors
        bias2_grad = out_grad.sum(dim=0, dtype=bias1.dtype)
        if torch.is_grad_enabled():
            # Somebody wants second derivatives, which the plain form has.
            _, pull_back = torch.func.vjp(_plain_form, x, weight1, bias1, weight2)
            return *pull_back(out_grad), bias2_grad, None
        x_grad = torch.empty_like(x)
        grads = [torch.zeros_like(parameter) for parameter in (weight1, bias1, weight2)]
        weight1_grad, bias1_grad, weight2_grad = grads
        weight1, bias1, weight2 = (part.to(x.dtype) for part in (weight1, bias1, weight2))
        # Rows and columns exchanged once, not for every chunk.
        back1, back2 = weight1.t().contiguous(), weight2.t().contiguous()
        parts = (tensor.split(ctx.chunk) for tensor in (x, x_grad, out_grad))
        for x_part, x_grad_part, out_grad_part in zip(*parts, strict=True):
            hidden = product(x_part, weight1, bias1, ctx.one_pass)
            _add_product(weight2_grad, out_grad_part.t(), F.gelu(hidden))
            active_grad = product(out_grad_part, back2, None, ctx.one_pass)
            hidden_grad = torch.ops.aten.gelu_backward(active_grad, hidden)
            _add_product(weight1_grad, hidden_grad.t(), x_part)
            bias1_grad += hidden_grad.sum(dim=0, dtype=bias1_grad.dtype)
            x_grad_part.copy_(product(hidden_grad, back1, None, ctx.one_pass))
        return x_grad, weight1_grad, bias1_grad, weight2_grad, bias2_grad, None
