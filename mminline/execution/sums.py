"""Sums over tokens in inference: the same however the tokens are cut into bands and slabs.

In float32 the last digits of a sum depend on its order, and so on bands, threads and processes:
pixels whose two best scores are nearly equal would change their class with them. Sums in float64
differ in digits that are lost when they are rounded to float32 afterwards.
"""

import torch
from torch import Tensor

from ..layers.statistics import token_mean
from .covariance import SumOfProducts, split_tokens, sum_of_products


def sums_in_float64(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether to sum in float64: half precision rounds more than any order, GPUs are slow in it.

    Args:
        dtype: Type of the products with weights.
        device: Where they run.
    """
    return dtype == torch.float32 and device.type == 'cpu'


def mean_and_products(x_1LC: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of tokens, and the products of all pairs of channels, measured from it and summed.

    Returns:
        The mean, ``(1, 1, C)``, and the sum, ``(1, C, C)``.
    """
    mean_11C = token_mean(x_1LC)
    return mean_11C, sum_of_products(x_1LC, mean_11C)


def mean_and_products_in_float64(x_1LC: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
    """Do the same for tokens in float32, summed in float64.

    Args:
        x_1LC: Tokens.
        width: Tokens of a row, if the tokens are rows of a grid.
    """
    num_tokens, channels = x_1LC.shape[1:]
    if width is not None and width >= channels:
        # A row is the same row in every cut, so float32 does for the sums within it.
        rows_KWC = x_1LC[0].unflatten(0, (-1, width))
        mean_K1C = token_mean(rows_KWC)
        centred_KWC = rows_KWC - mean_K1C
        products_KCC = centred_KWC.transpose(1, 2) @ centred_KWC
        mean_KC = mean_K1C.squeeze(1).double()
        mean_1C = mean_KC.mean(dim=0, keepdim=True)
        between_KC = mean_KC - mean_1C
        products_CC = products_KCC.sum(dim=0, dtype=torch.float64)
        products_CC.addmm_(between_KC.t(), between_KC, alpha=width)
        return mean_1C.unsqueeze(0), products_CC.unsqueeze(0)
    # Measured from zero, as float64 has digits to spare: so tokens are read once.
    products = SumOfProducts(x_1LC, torch.float64)
    sum_11C = x_1LC.new_zeros(1, 1, channels, dtype=torch.float64)
    for part_1LC in split_tokens(x_1LC):
        wide_1LC = part_1LC.double()
        products.add(wide_1LC)
        sum_11C += wide_1LC.sum(dim=1, keepdim=True)
    mean_11C = sum_11C / num_tokens
    return mean_11C, products.value() - sum_11C.transpose(1, 2) @ mean_11C
