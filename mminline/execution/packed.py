"""Blocks for images of several sizes at once, without padding.

The tokens of all images lie one behind the other. What treats each token by itself (norms, products
with weights, the MLP) runs once for all of them, which costs less than a pass for each size. Means,
covariances and the 3x3 step belong to an image. Where images have few tokens, these run in grids
of one size, in which tokens around an image are left out.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from ..layers import Block, InLineAttention
from ..layers.functional import fold_attention, grouped_convolution, local_residual
from ..layers.statistics import full_precision, token_mean, upcast
from .covariance import packed_values_and_covariance
from .groups import Group, from_grids, mark_covered, pack, to_grids, unpack
from .linear import linear
from .mlp import run_mlp


def run(
    block: Block, x_1LC: Tensor, groups: Sequence[Group], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    """Run a block.

    Args:
        block: As it was built.
        x_1LC: Packed tokens.
        groups: What they belong to.
        one_pass: Whether linears take bias and GELU along in one pass.
        dtype: Type in which products of tokens run.
    """
    if block.with_cp and block.training:
        return torch.utils.checkpoint.checkpoint(
            _run_block, block, x_1LC, groups, one_pass, dtype, use_reentrant=False
        )
    return _run_block(block, x_1LC, groups, one_pass, dtype)


def _run_block(
    block: Block, x_1LC: Tensor, groups: Sequence[Group], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    mixed_1LC = _run_attention(block.attn, block.norm1(x_1LC), groups, one_pass, dtype)
    x_1LC = x_1LC + _drop_path(block, mixed_1LC, groups)
    hidden_1LC = run_mlp(block.mlp, block.norm2(x_1LC).to(dtype), one_pass)
    return x_1LC + _drop_path(block, hidden_1LC, groups)


def _drop_path(block: Block, x_1LC: Tensor, groups: Sequence[Group]) -> Tensor:
    """Skip a branch for some images."""
    if isinstance(block.drop_path, nn.Identity) or not block.drop_path.training:
        return x_1LC
    batches = [group.batch for group in groups]
    # In float32: half precision would round the factor, and with it all values alike.
    factors = block.drop_path(upcast(x_1LC.new_ones(sum(batches), 1, 1))).split(batches)
    lengths = [group.num_tokens // group.batch for group in groups]
    factors = [part.expand(-1, L, -1) for part, L in zip(factors, lengths, strict=True)]
    return (x_1LC * pack(factors)).to(x_1LC.dtype)


def _run_attention(
    layer: nn.Module, x_1LC: Tensor, groups: Sequence[Group], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    shapes = [group.hw_shape for group in groups]
    if type(layer) is not InLineAttention or any(map(layer.windows, shapes)):
        parts = unpack(x_1LC, groups)
        return pack([layer(part, shape) for part, shape in zip(parts, shapes, strict=True)])
    one_pass = one_pass and not torch.is_grad_enabled()
    # One form for all images: that of their mean size.
    folds = layer.can_fold(x_1LC.shape[1] // sum(group.batch for group in groups))
    mix = _mix_folded if folds else _mix_in_grids
    with full_precision(x_1LC):
        mixed_1LC = mix(layer, x_1LC, groups, one_pass, dtype)
        return layer.drop(linear(layer.proj, mixed_1LC, one_pass))


def _mix_in_grids(
    layer: InLineAttention,
    x_1LC: Tensor,
    groups: Sequence[Group],
    one_pass: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Mix by the paper's equation, all images at once.

    With few tokens a channel, nearly all work is in the products with weights; that on the tokens
    around an image costs less than calls for each size.
    """
    hw_shape = tuple(map(max, zip(*(group.hw_shape for group in groups), strict=True)))

    def spread(tokens_1LC: Tensor) -> Tensor:
        return to_grids(tokens_1LC, groups, hw_shape).flatten(1, 2)

    valid_BL1 = mark_covered(tuple(groups), hw_shape, x_1LC.device, dtype)
    qkv = spread(linear(layer.qkv, x_1LC.to(dtype), one_pass))
    mixed_BLC, v_BLC = layer.mix_qkv(qkv, valid_BL1)
    if layer.local_kernel is not None:
        kernel_BC33 = layer.make_kernel(token_mean(spread(x_1LC), valid_BL1))
        # The grids are small: one convolution for all of them, whatever it moves.
        kernel_BC33 = kernel_BC33.to(v_BLC.dtype)
        mixed_BLC = mixed_BLC + grouped_convolution(v_BLC, kernel_BC33, hw_shape, None)
    return from_grids(mixed_BLC.unflatten(1, hw_shape), groups)


def _mix_folded(
    layer: InLineAttention,
    x_1LC: Tensor,
    groups: Sequence[Group],
    one_pass: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Mix by the folded form, size by size but for the weights."""
    qkv, sizes = layer.qkv, [group.batch for group in groups]
    # Means of tokens as they come: half precision would lose their gradients.
    x_mean_B1C = torch.cat([token_mean(part_BLC) for part_BLC in unpack(x_1LC, groups)])
    x_1LC = x_1LC.to(dtype)
    v_weight, v_bias = qkv.weight.chunk(3)[2], qkv.bias.chunk(3)[2]
    v_1LC, covariance_BCC = packed_values_and_covariance(
        x_1LC, x_mean_B1C, v_weight, v_bias, groups, one_pass
    )
    v_mean_B1C = F.linear(x_mean_B1C, upcast(v_weight), upcast(v_bias))
    folded = fold_attention(
        covariance_BCC, v_mean_B1C, qkv.weight, qkv.bias, layer.num_heads, layer.scale
    )
    mixings, offsets = (part.to(dtype).split(sizes) for part in folded)
    if layer.local_kernel is not None:
        kernels = layer.make_kernel(x_mean_B1C).split(sizes)
        shapes = [group.hw_shape for group in groups]
        offsets = map(local_residual, unpack(v_1LC, groups), kernels, shapes, offsets)
    return pack(list(map(torch.baddbmm, offsets, unpack(x_1LC, groups), mixings)))
