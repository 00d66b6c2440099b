"""Statistics in inference: the same for all bands, slabs and numbers of threads.

In float32 the last digits of a sum depend on its order, and so on bands, threads and processes:
pixels whose two best scores are nearly equal would change their class with them. Sums in float64
differ in digits that are lost when they are rounded to float32 afterwards.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..layers import InLineAttention
from ..layers.statistics import token_mean
from .covariance import SumOfProducts, split_tokens, sum_of_products
from .slabs import average_over_slabs, sum_over_slabs


def uses_float64(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether to sum in float64: half precision rounds more than any order, GPUs are slow in it.

    Args:
        dtype: Type of the products with weights.
        device: Where they run.
    """
    return dtype == torch.float32 and device.type == 'cpu'


def sums_in_float64(x_1LC: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
    """Sum tokens in float32, and the products of all pairs of their channels, in float64.

    Products are measured from zero, as float64 has digits to spare. The sum of the tokens is exact
    as a rule. It has to be: numbers of few digits divided by their count are often halfway between
    two numbers of float32, where the last digit of float64 would decide.

    Args:
        x_1LC: Tokens.
        width: Tokens of a row, if the tokens are rows of a grid.

    Returns:
        The sums, ``(1, 1, C)`` and ``(1, C, C)``.
    """
    channels = x_1LC.shape[2]
    if width is not None and width >= channels:
        # A row is the same row in every cut, so float32 does for the sums within it.
        rows_KWC = x_1LC[0].unflatten(0, (-1, width))
        mean_K1C = token_mean(rows_KWC)
        centred_KWC = rows_KWC - mean_K1C
        products_KCC = centred_KWC.transpose(1, 2) @ centred_KWC
        mean_KC = mean_K1C.squeeze(1).double()
        products_CC = products_KCC.sum(dim=0, dtype=torch.float64)
        products_CC.addmm_(mean_KC.t(), mean_KC, alpha=width)
        return width * mean_KC.sum(dim=0)[None, None], products_CC[None]
    products = SumOfProducts(x_1LC, torch.float64)
    sum_11C = x_1LC.new_zeros(1, 1, channels, dtype=torch.float64)
    for part_1LC in split_tokens(x_1LC):
        wide_1LC = part_1LC.double()
        products.add(wide_1LC)
        sum_11C += wide_1LC.sum(dim=1, keepdim=True)
    return sum_11C, products.value()


def merge_sums(
    parts: Sequence[tuple[Tensor, Tensor]], hw_shape: tuple[int, int], num_tokens: int
) -> tuple[Tensor, Tensor]:
    """Mean token and covariance of the channels, in float32, from ``sums_in_float64`` of bands.

    Args:
        parts: Sums of each band.
        hw_shape: Height and width of the grid; a ``SlabShape`` for a slab of it.
        num_tokens: Tokens of the whole grid.
    """
    sum_11C, products_1CC = (
        sum_over_slabs(sum(part), hw_shape) for part in zip(*parts, strict=True)
    )
    mean_11C = sum_11C / num_tokens
    covariance_1CC = products_1CC / num_tokens - mean_11C.transpose(1, 2) @ mean_11C
    return mean_11C.float(), covariance_1CC.float()


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
