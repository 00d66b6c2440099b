"""Weights of one query, laid out over the image."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..layers.attention import AttentionWeights


class WeightMaps(NamedTuple):
    """Weights that one query gives to each key, of each head, ``(N, H, W)``.

    The local residual has a kernel for each channel; here stands its mean over the channels of
    a head, so that ``attention + residual`` is the mean weight of a key in the output.
    """

    attention: Tensor
    residual: Tensor | None  # None for a layer without
    keys: int  # that the query sees

    @property
    def total(self) -> Tensor:
        return self.attention if self.residual is None else self.attention + self.residual


def weight_maps(attention: AttentionWeights, cell: tuple[int, int]) -> WeightMaps:
    """Lay out the weights of the query at a cell.

    Args:
        attention: The attention, of one image.
        cell: Row and column of the query.

    Returns:
        Maps of the keys' own height and width, which are smaller than those of the queries where
        keys are reduced. Keys outside the query's window have weight 0.
    """
    number = cell[0] * attention.hw_shape[1] + cell[1]
    ((group, row),) = (attention.cell_BL == number).nonzero().tolist()
    groups, rows = slice(group, group + 1), torch.tensor([row], device=attention.cell_BL.device)
    weights_NM = attention.weights(groups, rows)[0, :, 0]
    residual_NM, num_keys = None, int(attention.visible(groups, rows).sum())
    if attention.kernel_BC33 is not None:
        index_LK, seen_BLK = attention.neighbours(groups, rows)
        kernel_CK = attention.kernel_BC33[group].flatten(1)
        kernel_NK = kernel_CK.unflatten(0, (len(weights_NM), -1)).mean(dim=1) * seen_BLK[0]
        residual_NM = torch.zeros_like(weights_NM).index_add_(1, index_LK[0], kernel_NK)
    if attention.reduction > 1:
        return WeightMaps(weights_NM.unflatten(1, attention.key_grid), None, num_keys)
    cell_L = attention.cell_BL[group]
    maps = (
        None if part_NM is None else _place(part_NM, cell_L, attention.hw_shape)
        for part_NM in (weights_NM, residual_NM)
    )
    return WeightMaps(*maps, num_keys)


def _place(values_NL: Tensor, cell_L: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Put values of a group where they belong on the map; padding belongs nowhere."""
    map_NM = values_NL.new_zeros(len(values_NL), hw_shape[0] * hw_shape[1])
    map_NM[:, cell_L[cell_L >= 0]] = values_NL[:, cell_L >= 0]
    return map_NM.unflatten(1, hw_shape)
