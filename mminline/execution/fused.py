"""Blocks with fewer passes over memory, in training and in inference.

PyTorch writes the bias of a linear to memory, adds the product to it, and reads all of that again
for a GELU. oneDNN, a part of PyTorch, does the three while the numbers are in registers, but knows
nothing of gradients: it serves inference, and forward passes whose backward is written by hand.
"""

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from ..layers import Block, InLineAttention
from ..layers.functional import fold_attention, mix_by_covariance
from ..layers.statistics import full_precision, token_mean, upcast
from .covariance import values_and_covariance
from .linear import linear
from .mlp import run_mlp
from .slabs import (
    attend,
    average_over_slabs,
    local_residual,
    mix_qkv,
    sum_over_slabs,
    whole_shape,
    whole_tokens,
)
from .sums import make_kernel, merge_rows, sum_rows, sums_by_rows


def run(
    module: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    """Run a block or an attention layer.

    Args:
        module: ``Block`` or attention layer, as it was built.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid.
        one_pass: Whether linears take bias and GELU along in one pass.
        dtype: Type in which products of tokens run.
    """
    if not isinstance(module, Block):
        return run_attention(module, x_BLC, hw_shape, one_pass, dtype)
    if module.with_cp and module.training:
        return torch.utils.checkpoint.checkpoint(
            _run_block, module, x_BLC, hw_shape, one_pass, dtype, use_reentrant=False
        )
    return _run_block(module, x_BLC, hw_shape, one_pass, dtype)


def _run_block(
    block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    mixed_BLC = run_attention(block.attn, block.norm1(x_BLC), hw_shape, one_pass, dtype)
    x_BLC = x_BLC + block.drop_path(mixed_BLC)
    return x_BLC + block.drop_path(run_mlp(block.mlp, block.norm2(x_BLC).to(dtype), one_pass))


def run_attention(
    layer: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    """Run an attention layer; InLine attention over the whole map has a faster form."""
    if type(layer) is not InLineAttention or layer.windows(whole_shape(hw_shape)) is not None:
        return attend(layer, x_BLC, hw_shape)
    one_pass = one_pass and not torch.is_grad_enabled()
    with full_precision(x_BLC):
        if layer.can_fold(whole_tokens(x_BLC, hw_shape)):
            # The mean of tokens as they come: its gradient is small, and half precision would
            # lose it in theirs.
            x_mean_B1C = average_over_slabs(token_mean(x_BLC), hw_shape)
            x_BLC = x_BLC.to(dtype)
            kernel_BC33 = None if layer.local_kernel is None else layer.make_kernel(x_mean_B1C)
            mixed_BLC = _mix_folded(layer, x_BLC, x_mean_B1C, kernel_BC33, hw_shape, one_pass)
        else:
            mixed_BLC = _mix_unfolded(layer, x_BLC, hw_shape, one_pass, dtype)
        return layer.drop(linear(layer.proj, mixed_BLC, one_pass))


def _mix_unfolded(
    layer: InLineAttention,
    x_BLC: Tensor,
    hw_shape: tuple[int, int],
    one_pass: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Mix by queries and keys."""
    qkv = linear(layer.qkv, x_BLC.to(dtype), one_pass)
    # In inference, maps too short for the folded form are summed as longer ones are in bands.
    is_short = layer.folded is None and layer.has_folded_form() and not torch.is_grad_enabled()
    channels = layer.embed_dims // layer.num_heads
    by_rows = is_short and sums_by_rows(dtype, x_BLC.device, hw_shape[1], channels)
    mix = _mix_by_rows if by_rows else mix_qkv
    mixed_BLC, v_BLC = mix(layer, qkv, hw_shape)
    if layer.local_kernel is None:
        return mixed_BLC
    x_sum_B1C = (x_BLC.double() if by_rows else upcast(x_BLC)).sum(dim=1, keepdim=True)
    x_mean_B1C = sum_over_slabs(x_sum_B1C, hw_shape) / whole_tokens(x_BLC, hw_shape)
    return mixed_BLC + local_residual(
        v_BLC,
        make_kernel(layer, x_mean_B1C, by_rows),
        hw_shape,
        num_extra_tokens=layer.num_extra_tokens,
    )


def _mix_by_rows(
    layer: InLineAttention, qkv: Tensor, hw_shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Mix as ``mix_qkv`` does, by statistics that do not depend on slabs."""
    q_BNLD, k_BNLD, v_BNLD = layer.split_qkv(qkv)
    sums = sum_rows(k_BNLD, v_BNLD, hw_shape[1], layer.num_extra_tokens)
    v_mean_BN1D, covariance_BNDD = merge_rows([sums], hw_shape, layer.num_extra_tokens)
    mixed_BNLD = mix_by_covariance(q_BNLD, layer.scale * covariance_BNDD, v_mean_BN1D, v_BNLD.dtype)
    return mixed_BNLD.transpose(1, 2).flatten(-2), qkv.chunk(3, dim=-1)[2]


def _mix_folded(
    layer: InLineAttention,
    x_BLC: Tensor,
    x_mean_B1C: Tensor,
    kernel_BC33: Tensor | None,
    hw_shape: tuple[int, int],
    one_pass: bool,
) -> Tensor:
    """Mix by the folded form, with sums taken along by the products."""
    qkv = layer.qkv
    v_weight, v_bias = qkv.weight.chunk(3)[2], qkv.bias.chunk(3)[2]
    v_BLC, covariance_BCC = values_and_covariance(x_BLC, x_mean_B1C, v_weight, v_bias, one_pass)
    covariance_BCC = average_over_slabs(covariance_BCC, hw_shape)
    v_mean_B1C = F.linear(x_mean_B1C, upcast(v_weight), upcast(v_bias))
    mixing_BCC, offset_B1C = (
        part.to(x_BLC.dtype)
        for part in fold_attention(
            covariance_BCC, v_mean_B1C, qkv.weight, qkv.bias, layer.num_heads, layer.scale
        )
    )
    if kernel_BC33 is None:
        return torch.baddbmm(offset_B1C, x_BLC, mixing_BCC)
    local_BLC = local_residual(v_BLC, kernel_BC33, hw_shape, offset_B1C, layer.num_extra_tokens)
    if torch.is_grad_enabled():
        return torch.baddbmm(local_BLC, x_BLC, mixing_BCC)
    return local_BLC.baddbmm_(x_BLC, mixing_BCC)
