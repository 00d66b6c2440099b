"""Layers of the Swin of mmdet and mmseg in a form that leaves the size of a map open.

Those draw masks into a map of the size, count its windows with ``int()`` and pad it if it needs
padding, which fixes the size of the map while a graph is traced.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...execution.exported import softmax_windows, take_rolled
from ...layers.windows import cut_windows, join_windows, missing_cells, pad_to_multiple

# What mmdet adds to the products of cells that must not see each other.
HIDDEN = -100.0


class OpenWindowAttention(nn.Module):
    """``ShiftWindowMSA``: softmax attention in windows, shifted at any size of the map.

    Args:
        part: The layer. Its queries have to be scaled as usual.
    """

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        attention = part.w_msa
        self.window, self.shift = part.window_size, part.shift_size
        self.num_heads = attention.num_heads
        self.qkv, self.proj = attention.qkv, attention.proj
        bias_LLN = attention.relative_position_bias_table[attention.relative_position_index]
        self.register_buffer('bias_NLL', bias_LLN.detach().permute(2, 0, 1).contiguous())
        self.register_buffer('side_masks', side_masks(self.window, self.shift))

    def forward(self, query: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        x_BHWC = pad_to_multiple(query.unflatten(1, hw_shape), self.window, always=True)
        x_BHWC = take_rolled(x_BHWC, -self.shift, x_BHWC.shape[1:3])
        mixed = softmax_windows(
            self.qkv(cut_windows(x_BHWC, self.window)),
            self.num_heads,
            self.bias_NLL,
            self.side_masks,
            self.shift or None,
        )
        mixed_BHWC = join_windows(self.proj(mixed), self.window)
        return take_rolled(mixed_BHWC, self.shift, hw_shape).flatten(1, 2)


def side_masks(window: int, shift: int) -> Tensor:
    """Masks of windows inside, at the right, at the bottom and in the corner of a shifted map."""
    beyond = torch.arange(window) >= window - shift
    row, column = beyond.repeat_interleave(window), beyond.repeat(window)
    below, beside = (side[:, None] != side for side in (row, column))
    crossing = torch.stack([torch.zeros_like(below), beside, below, below | beside])
    return HIDDEN * crossing


class OpenPatchMerging(nn.Module):
    """``PatchMerging``: each square of cells becomes one.

    Args:
        part: The layer, whose squares do not overlap.
    """

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.side = part.sampler.kernel_size[0]
        self.norm = part.norm or nn.Identity()
        self.reduction = part.reduction

    def forward(self, x: Tensor, input_size: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        x_BHWC = pad_to_multiple(x.unflatten(1, input_size), self.side, always=True)
        cells = x_BHWC.unflatten(2, (-1, self.side)).unflatten(1, (-1, self.side))
        # Channel by channel, as nn.Unfold lists the cells of a square.
        squares_BHWC = cells.permute(0, 1, 3, 5, 2, 4).flatten(3)
        merged = self.reduction(self.norm(squares_BHWC.flatten(1, 2)))
        return merged, tuple(squares_BHWC.shape[1:3])


class OpenPadding(nn.Module):
    """``AdaptivePadding`` at the right and at the bottom, for patches that do not overlap.

    Args:
        sides: Height and width of a patch.
    """

    def __init__(self, sides: tuple[int, int]) -> None:
        super().__init__()
        self.sides = sides

    def forward(self, map_BCHW: Tensor) -> Tensor:
        below, right = map(missing_cells, map_BCHW.shape[-2:], self.sides)
        return F.pad(map_BCHW, (0, right, 0, below))


def open_window_form(part: nn.Module) -> nn.Module | None:
    """Return the open form of a layer of Swin; None for other layers and other settings."""
    if type(part).__module__.partition('.')[0] not in ('mmcv', 'mmdet', 'mmseg'):
        return None  # what others call so may compute something else
    kind = type(part).__name__
    if kind == 'ShiftWindowMSA' and _is_scaled_as_usual(part.w_msa):
        return OpenWindowAttention(part)
    if kind == 'PatchMerging' and _pads_the_corner(getattr(part, 'adap_padding', None)):
        return OpenPatchMerging(part)
    if kind == 'AdaptivePadding' and _pads_the_corner(part):
        return OpenPadding(part.kernel_size)
    return None


def _is_scaled_as_usual(attention: nn.Module) -> bool:
    return attention.scale == (attention.embed_dims // attention.num_heads) ** -0.5


def _pads_the_corner(part: nn.Module | None) -> bool:
    """Whether padding is at one side only, and patches do not overlap."""
    return (
        part is not None
        and part.padding == 'corner'
        and part.kernel_size == part.stride
        and set(part.dilation) == {1}
    )
