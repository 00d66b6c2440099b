"""Embeddings: from an image or a map to the tokens of a stage."""

import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from .statistics import full_precision
from .windows import pad_to_multiple


class PatchEmbed(BaseModule):
    """Strided convolution and LayerNorm: from a map to tokens.

    The map is zero-padded at right and bottom to whole patches, so a grid has
    ``ceil(side / patch_size)`` cells.

    Args:
        in_channels: Channels of the map.
        embed_dims: Channels of the tokens.
        patch_size: Side and stride of a patch.
        norm: Whether there is a LayerNorm.

    ``always_pad`` of ``forward`` is for graphs recorded for any size, see ``pad_to_multiple``.
    """

    def __init__(
        self, in_channels: int, embed_dims: int, patch_size: int, norm: bool = True
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(in_channels, embed_dims, patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(embed_dims) if norm else nn.Identity()

    def forward(self, map_BCHW: Tensor, always_pad: bool = False) -> tuple[Tensor, tuple[int, int]]:
        x_BHWC = pad_to_multiple(map_BCHW.permute(0, 2, 3, 1), self.patch_size, always_pad)
        # A channels-last convolution writes tokens: no transpose afterwards.
        map_BCHW = self.proj(x_BHWC.contiguous().permute(0, 3, 1, 2))
        hw_shape = tuple(map_BCHW.shape[-2:])
        return self.norm(map_BCHW.permute(0, 2, 3, 1).flatten(1, 2)), hw_shape


class PatchMerging(BaseModule):
    """Concatenate 2x2 neighbours, LayerNorm, reduce the channels, as in Swin.

    Args:
        in_channels: Channels of the map.
        embed_dims: Channels of the tokens.
    """

    patch_size = 2

    def __init__(self, in_channels: int, embed_dims: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * in_channels)
        self.reduction = nn.Linear(4 * in_channels, embed_dims, bias=False)

    def forward(self, map_BCHW: Tensor, always_pad: bool = False) -> tuple[Tensor, tuple[int, int]]:
        x_BHWC = pad_to_multiple(map_BCHW.permute(0, 2, 3, 1), 2, always_pad)
        # Order of the published weights: down the left column, then down the right one.
        cells = x_BHWC.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).permute(0, 1, 3, 4, 2, 5)
        hw_shape = tuple(cells.shape[1:3])
        return self.reduction(self.norm(cells.flatten(3).flatten(1, 2))), hw_shape


def resize_position(position_1HWC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Resize a position embedding bilinearly to a grid, as tokens; its own grid changes nothing."""
    height, width = hw_shape
    return resize_columns(resize_rows(position_1HWC, height), width).flatten(1, 2)


def resize_rows(position_1HWC: Tensor, height: int) -> Tensor:
    """Resize a position embedding to a height.

    This comes first, so each row of a grid is the same whether others are made or not.
    """
    return _interpolate(position_1HWC, (height, position_1HWC.shape[2]))


def resize_columns(position_1HWC: Tensor, width: int) -> Tensor:
    """Resize a position embedding, or some rows of it, to a width."""
    return _interpolate(position_1HWC, (position_1HWC.shape[1], width))


def _interpolate(map_BHWC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    with full_precision(map_BHWC):
        map_BCHW = map_BHWC.permute(0, 3, 1, 2)
        resized = F.interpolate(map_BCHW, hw_shape, mode='bilinear', align_corners=False)
    return resized.permute(0, 2, 3, 1)
