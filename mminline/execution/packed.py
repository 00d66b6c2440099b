"""Blocks for images of several sizes at once, without padding.

The tokens of all images lie one behind the other. What treats each token by itself (norms, products
with weights, the MLP) runs once for all of them, which costs less than a pass for each size. Means,
covariances and the 3x3 step belong to an image.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from ..layers import Block, InLineAttention
from ..layers.functional import fold_attention, local_residual
from ..layers.statistics import token_mean, upcast
from .covariance import values_and_covariance
from .linear import linear
from .mlp import run_mlp


class Group(NamedTuple):
    """Images of one size: how many, and the height and width of their grids."""

    batch: int
    hw_shape: tuple[int, int]

    @property
    def num_tokens(self) -> int:
        return self.batch * self.hw_shape[0] * self.hw_shape[1]


def pack(parts: Sequence[Tensor]) -> Tensor:
    """Put the tokens of groups, ``(B, L, C)`` each, one behind the other, ``(1, L, C)``."""
    return torch.cat([part_BLC.flatten(0, 1) for part_BLC in parts])[None]


def unpack(x_1LC: Tensor, groups: Sequence[Group]) -> list[Tensor]:
    """Undo ``pack``, without a copy."""
    parts = x_1LC[0].split([group.num_tokens for group in groups])
    return [
        part_LC.unflatten(0, (group.batch, -1))
        for part_LC, group in zip(parts, groups, strict=True)
    ]


def run(block: Block, x_1LC: Tensor, groups: Sequence[Group], one_pass: bool) -> Tensor:
    """Run a block.

    Args:
        block: As it was built.
        x_1LC: Packed tokens.
        groups: What they belong to.
        one_pass: Whether linears take bias and GELU along in one pass.
    """
    if block.with_cp and block.training:
        return torch.utils.checkpoint.checkpoint(
            _run_block, block, x_1LC, groups, one_pass, use_reentrant=False
        )
    return _run_block(block, x_1LC, groups, one_pass)


def _run_block(block: Block, x_1LC: Tensor, groups: Sequence[Group], one_pass: bool) -> Tensor:
    mixed_1LC = _run_attention(block.attn, block.norm1(x_1LC), groups, one_pass)
    x_1LC = x_1LC + _drop_path(block, mixed_1LC, groups)
    return x_1LC + _drop_path(block, run_mlp(block.mlp, block.norm2(x_1LC), one_pass), groups)


def _drop_path(block: Block, x_1LC: Tensor, groups: Sequence[Group]) -> Tensor:
    """Skip a branch for some images."""
    if isinstance(block.drop_path, nn.Identity):
        return x_1LC
    return pack([block.drop_path(part_BLC) for part_BLC in unpack(x_1LC, groups)])


def _run_attention(
    layer: nn.Module, x_1LC: Tensor, groups: Sequence[Group], one_pass: bool
) -> Tensor:
    parts = unpack(x_1LC, groups)
    shapes = [group.hw_shape for group in groups]
    if type(layer) is not InLineAttention or any(map(layer.windows, shapes)):
        return pack([layer(part, shape) for part, shape in zip(parts, shapes, strict=True)])
    one_pass = one_pass and not torch.is_grad_enabled()
    x_mean_B1C = torch.cat([token_mean(part_BLC) for part_BLC in parts])
    if layer.can_fold(x_1LC.shape[1] // len(x_mean_B1C)):
        mixed, values = _mix_folded(layer, parts, x_mean_B1C, one_pass)
    else:
        qkv = unpack(linear(layer.qkv, x_1LC, one_pass), groups)
        mixed, values = zip(*map(layer.mix_qkv, qkv), strict=True)
    if layer.local_kernel is not None:
        kernels = layer.make_kernel(x_mean_B1C).split([group.batch for group in groups])
        steps = map(local_residual, values, kernels, shapes)
        mixed = [mixed_BLC + local_BLC for mixed_BLC, local_BLC in zip(mixed, steps, strict=True)]
    return layer.drop(linear(layer.proj, pack(mixed), one_pass))


def _mix_folded(
    layer: InLineAttention, parts: Sequence[Tensor], x_mean_B1C: Tensor, one_pass: bool
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Mix by the folded form; returns mixed values and values of each group."""
    sizes, qkv = [len(part_BLC) for part_BLC in parts], layer.qkv
    v_weight, v_bias = qkv.weight.chunk(3)[2], qkv.bias.chunk(3)[2]
    pairs = [
        values_and_covariance(part_BLC, mean_B1C, v_weight, v_bias, one_pass)
        for part_BLC, mean_B1C in zip(parts, x_mean_B1C.split(sizes), strict=True)
    ]
    values, covariances = zip(*pairs, strict=True)
    v_mean_B1C = F.linear(x_mean_B1C, upcast(v_weight), upcast(v_bias))
    folded = fold_attention(
        torch.cat(covariances), v_mean_B1C, qkv.weight, qkv.bias, layer.num_heads, layer.scale
    )
    mixings, offsets = (part.to(parts[0].dtype).split(sizes) for part in folded)
    return list(map(torch.baddbmm, offsets, parts, mixings)), values
