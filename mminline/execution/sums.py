"""Statistics in inference: the same for all bands, slabs and numbers of threads.

In float32 the last digits of a sum depend on its order, and so on bands, threads and processes:
pixels whose two best scores are nearly equal would change their class with them. So the pieces of
a sum are rows, which are the same in every cut. Products within a row are added up to those of
other rows in float64, which has 29 bits to spare, so hardly any of these sums is rounded at all.
The means of all rows are kept, and put together at the end in their order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..layers import InLineAttention
from ..layers.statistics import token_mean
from . import cache
from .covariance import sum_of_products
from .slabs import SlabShape, average_over_slabs, sum_over_slabs


def sums_by_rows(dtype: torch.dtype, device: torch.device, width: int, channels: int) -> bool:
    """Whether to sum by rows: half precision rounds more than any order, GPUs are slow in float64.

    Args:
        dtype: Type of the products with weights.
        device: Where they run.
        width: Tokens of a row; each row costs sums over all pairs of channels, so short ones are
            not worth it.
        channels: Channels of a token.
    """
    return dtype == torch.float32 and device.type == 'cpu' and 16 * width >= channels


class RowSums(NamedTuple):
    """Sums over rows of tokens, for the covariance of two sets of channels, C and D.

    Attributes:
        products: Products of all pairs of channels, measured from the means of each row, summed
            in float64, ``(..., C, D)``.
        left_means: Means of the channels C in each row, ``(..., R, C)``; each token in front of
            the grid is a row by itself.
        right_means: The same for the channels D.
    """

    products: Tensor
    left_means: Tensor
    right_means: Tensor


def sum_rows(left: Tensor, right: Tensor, width: int, num_extra_tokens: int = 0) -> RowSums:
    """Sum over rows of tokens.

    Args:
        left: Tokens, ``(..., L, C)``.
        right: The same tokens with other channels, ``(..., L, D)``; may be ``left`` itself.
        width: Tokens of a row.
        num_extra_tokens: Tokens in front of the first row.
    """
    rows = left.shape[-2] // width
    shape = (*left.shape[:-2], left.shape[-1], right.shape[-1])
    products = left.new_zeros(shape, dtype=torch.float64)
    sides = (left,) if right is left else (left, right)
    means = [[side[..., :num_extra_tokens, :]] for side in sides]
    # Of these, products of all pairs of channels are kept for a moment.
    piece = max(cache.chunk_values(left) // max(products.numel(), 1), 1)
    for first in range(0, rows, piece):
        ends = (num_extra_tokens + width * row for row in (first, min(first + piece, rows)))
        tokens = slice(*ends)
        centred = []
        for side, side_means in zip(sides, means, strict=True):
            rows_RWC = side[..., tokens, :].unflatten(-2, (-1, width))
            mean_R1C = token_mean(rows_RWC)
            side_means.append(mean_R1C.squeeze(-2))
            centred.append(rows_RWC - mean_R1C)
        products += (centred[0].transpose(-2, -1) @ centred[-1]).sum(dim=-3, dtype=torch.float64)
    all_means = [torch.cat(side_means, dim=-2) for side_means in means]
    return RowSums(products, all_means[0], all_means[-1])


def merge_rows(
    parts: Sequence[RowSums], hw_shape: tuple[int, int], num_extra_tokens: int = 0
) -> tuple[Tensor, Tensor]:
    """Mean of the channels D, ``(..., 1, D)``, and their covariance with the channels C.

    Args:
        parts: Sums over each band, from top to bottom.
        hw_shape: Height and width of the grid; a ``SlabShape`` for a slab of it.
        num_extra_tokens: Tokens in front of the grid.
    """
    products = sum_over_slabs(sum(part.products for part in parts), hw_shape)
    left_RC = _join_rows([part.left_means for part in parts], hw_shape)
    right_RD = left_RC
    if parts[0].right_means is not parts[0].left_means:
        right_RD = _join_rows([part.right_means for part in parts], hw_shape)
    counts_R1 = left_RC.new_full((left_RC.shape[-2], 1), hw_shape[1])
    counts_R1[:num_extra_tokens] = 1
    num_tokens = counts_R1.sum()
    left_mean_1C, right_mean_1D = (
        (counts_R1 * means).sum(dim=-2, keepdim=True) / num_tokens for means in (left_RC, right_RD)
    )
    between = (counts_R1 * (left_RC - left_mean_1C)).transpose(-2, -1) @ (right_RD - right_mean_1D)
    return right_mean_1D.float(), ((products + between) / num_tokens).float()


def _join_rows(means: Sequence[Tensor], hw_shape: tuple[int, int]) -> Tensor:
    """Means of all rows of a grid in their order, in float64."""
    own_RC = torch.cat(list(means), dim=-2)
    if isinstance(hw_shape, SlabShape):
        all_RC = own_RC.new_zeros(*own_RC.shape[:-2], hw_shape.whole[0], own_RC.shape[-1])
        all_RC[..., hw_shape.top : hw_shape.top + hw_shape[0], :] = own_RC
        own_RC = sum_over_slabs(all_RC, hw_shape)
    return own_RC.double()


def centred_sums(x_1LC: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of tokens, and the products of all pairs of channels, measured from it and summed.

    Returns:
        The mean, ``(1, 1, C)``, and the sum, ``(1, C, C)``.
    """
    mean_11C = token_mean(x_1LC)
    return mean_11C, sum_of_products(x_1LC, mean_11C)


def merge_centred_sums(
    parts: Sequence[tuple[Tensor, Tensor]], hw_shape: tuple[int, int], lengths: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Mean token and covariance of the channels, from ``centred_sums`` of bands.

    Each band is centred by its own mean, so no digits are lost to a common offset of the channels.

    Args:
        parts: Mean and products of each band.
        hw_shape: Height and width of the grid; a ``SlabShape`` for a slab of it.
        lengths: Tokens of each band.
    """
    means, products = zip(*parts, strict=True)
    num_tokens = sum(lengths)
    means_1KC = torch.cat(means, dim=1)
    share_1K1 = means_1KC.new_tensor(lengths)[None, :, None] / num_tokens
    mean_11C = average_over_slabs((share_1K1 * means_1KC).sum(dim=1, keepdim=True), hw_shape)
    between_1KC = means_1KC - mean_11C
    between_1CC = (share_1K1 * between_1KC).transpose(1, 2) @ between_1KC
    return mean_11C, average_over_slabs(sum(products) / num_tokens + between_1CC, hw_shape)


def make_kernel(layer: InLineAttention, x_mean_B1C: Tensor, in_float64: bool) -> Tensor:
    """Make the 3x3 kernel of each image and channel from its mean token, in float32.

    Args:
        layer: The layer, with its parts as they were built.
        x_mean_B1C: Mean token.
        in_float64: Whether to compute in float64: in float32, oneDNN has another grouped
            convolution for one thread than for several.
    """
    if not in_float64:
        return layer.make_kernel(x_mean_B1C)
    first, activation, second = layer.local_kernel
    hidden_BC1 = activation(_convolve_in_float64(first, x_mean_B1C.transpose(1, 2)))
    kernel_BC1 = _convolve_in_float64(second, hidden_BC1).float()
    return kernel_BC1.unflatten(1, (-1, 3, 3)).squeeze(-1)


def _convolve_in_float64(layer: nn.Conv1d, x_BCL: Tensor) -> Tensor:
    bias = None if layer.bias is None else layer.bias.double()
    return layer._conv_forward(x_BCL.double(), layer.weight.double(), bias)
