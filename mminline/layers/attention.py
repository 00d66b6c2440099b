"""Attention layers: parameters around the functions of ``functional``."""

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from .exporting import is_exporting, is_open, softmax_windows
from .functional import (
    FEATURE_MAPS,
    NON_NEGATIVE_FEATURE_MAPS,
    folded_inline_attention,
    inline_attention,
    linear_attention,
    local_residual,
)
from .fused import call_linear, has_own_hooks
from .statistics import full_precision, token_mean
from .windows import merge_windows, split_windows, window_shift


def check_heads(embed_dims: int, num_heads: int) -> None:
    """Refuse channels that cannot be shared out evenly."""
    if embed_dims < 1 or num_heads < 1 or embed_dims % num_heads:
        raise ValueError(
            f'embed_dims has to be a positive multiple of num_heads, '
            f'got embed_dims={embed_dims} and num_heads={num_heads}'
        )


def check_tokens(x_BLC: Tensor, hw_shape: tuple[int, int], embed_dims: int) -> None:
    """Refuse tokens that are not those of the grid, such as a map or one with a class token."""
    height, width = hw_shape
    if x_BLC.dim() != 3 or x_BLC.shape[1] != height * width or x_BLC.shape[2] != embed_dims:
        raise ValueError(
            f'tokens have to have the shape (B, H * W, C) = (B, {height * width}, {embed_dims}) '
            f'for hw_shape={(height, width)} and embed_dims={embed_dims}, '
            f'got {tuple(x_BLC.shape)}'
        )


class InLineAttention(BaseModule):
    """Injective linear attention with a local residual, called as ``layer(x_BLC, hw_shape)``.

    ``y = proj(attention(q, k, v) + depthwise3x3(v, kernel(mean(x))))``

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        feature_map: Map of queries and keys: 'identity', 'relu', 'leaky_relu' or 'exp'.
        injective: False for plain linear attention, which needs 'relu' or 'exp'.
        local_residual: False to leave out the 3x3 step.
        window_size: Side of the windows that attention is kept in; None for the whole map.
        shifted: Whether windows are shifted by half their side.
        drop_rate: Dropout after the output projection.
        init_cfg: As everywhere in OpenMMLab.
    """

    # None: the cheaper of the two; True or False forces one, where the maths allows it.
    folded: bool | None = None

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        feature_map: str = 'identity',
        injective: bool = True,
        local_residual: bool = True,
        window_size: int | None = None,
        shifted: bool = False,
        drop_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_heads(embed_dims, num_heads)
        if feature_map not in FEATURE_MAPS:
            raise ValueError(
                f'feature_map has to be one of {list(FEATURE_MAPS)}, got {feature_map=}'
            )
        if not injective and feature_map not in NON_NEGATIVE_FEATURE_MAPS:
            raise ValueError(
                'injective=False divides weights by their sum, so the feature map has to be free '
                f'of negative values: one of {list(NON_NEGATIVE_FEATURE_MAPS)}, '
                f'got feature_map={feature_map!r}'
            )
        if window_size is not None and window_size < 1:
            raise ValueError(f'window_size has to be None or at least 1, got {window_size=}')
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.scale = (embed_dims // num_heads) ** -0.5
        self.feature_map = feature_map
        self.injective = injective
        self.window_size = window_size
        self.shifted = shifted
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims)
        self.local_kernel = (
            nn.Sequential(
                nn.Conv1d(embed_dims, embed_dims, 1, groups=num_heads),
                nn.GELU(),
                nn.Conv1d(embed_dims, 9 * embed_dims, 1, groups=num_heads),
            )
            if local_residual
            else None
        )
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        check_tokens(x_BLC, hw_shape, self.embed_dims)
        if self.sees_whole_map(hw_shape):
            mixed_BLC = self._mix(x_BLC, hw_shape)
        else:
            mixed_BLC = self._mix_windows(x_BLC, hw_shape)
        return self.drop(call_linear(self.proj, mixed_BLC))

    def sees_whole_map(self, hw_shape: tuple[int, int]) -> bool:
        """Whether a grid is not cut into windows."""
        if self.window_size is None or is_open(hw_shape):
            return self.window_size is None  # one window for the whole map gives the same
        return self.window_size >= max(hw_shape)

    def _mix_windows(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        """Mix the tokens of each window by themselves, padding left out."""
        window = self.window_size
        shift = window_shift(hw_shape, window, self.shifted)
        windows = split_windows(x_BLC, hw_shape, window, shift)
        valid = split_windows(x_BLC.new_ones(1, x_BLC.shape[1], 1), hw_shape, window, shift)
        valid = valid.expand(x_BLC.shape[0], -1, -1, -1, -1).flatten(0, 2)
        mixed = self._mix(windows.flatten(0, 2), (window, window), valid)
        return merge_windows(mixed.view_as(windows), hw_shape, window, shift)

    def _mix(
        self, x_BLC: Tensor, hw_shape: tuple[int, int], valid_BL1: Tensor | None = None
    ) -> Tensor:
        x_mean_B1C = token_mean(x_BLC, valid_BL1)
        kernel_BC33 = None if self.local_kernel is None else self.make_kernel(x_mean_B1C)
        if valid_BL1 is None and self.folds(x_BLC.shape[1]):
            return folded_inline_attention(
                x_BLC,
                x_mean_B1C,
                self.qkv.weight,
                self.qkv.bias,
                self.num_heads,
                self.scale,
                kernel_BC33,
                hw_shape,
            )
        mixed_BLC, v_BLC = self._attend(x_BLC, valid_BL1)
        if kernel_BC33 is None:
            return mixed_BLC
        return mixed_BLC + local_residual(v_BLC, kernel_BC33, hw_shape)

    def folds(self, num_tokens: int) -> bool:
        """Whether queries and keys can be folded away, and whether that pays."""
        if not (self.injective and self.feature_map == 'identity'):
            return False
        # A wrapper (LoRA, quantisation) or a hook has to see its layer called. Hooks on all layers
        # do not count: counters of FLOPs have them, and should count what is done.
        if type(self.qkv) is not nn.Linear or has_own_hooks(self.qkv):
            return False
        if self.folded is not None:
            return self.folded
        # The folded form trades work on tokens for work on C x C matrices. A compiled program
        # has it for any number of tokens, rather than two programs.
        return torch.compiler.is_compiling() or num_tokens >= self.embed_dims

    def _attend(self, x_BLC: Tensor, valid_BL1: Tensor | None) -> tuple[Tensor, Tensor]:
        """The usual form: returns mixed values and values, both (B, L, C)."""
        qkv = call_linear(self.qkv, x_BLC)
        if valid_BL1 is not None:
            # A zero token has the bias as its value; outside the map a value has to be zero.
            qkv = qkv * valid_BL1
            valid_BL1 = valid_BL1.unsqueeze(1)
        q_BNLD, k_BNLD, v_BNLD = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in qkv.chunk(3, dim=-1)
        )
        feature_map = FEATURE_MAPS[self.feature_map]
        q_BNLD, k_BNLD = feature_map(q_BNLD), feature_map(k_BNLD)
        if self.injective:
            mixed_BNLD = inline_attention(q_BNLD, k_BNLD, v_BNLD, self.scale, valid_BL1)
        else:
            mixed_BNLD = linear_attention(q_BNLD, k_BNLD, v_BNLD, valid_BL1)
        return mixed_BNLD.transpose(1, 2).flatten(-2), qkv.chunk(3, dim=-1)[2]

    def make_kernel(self, x_mean_B1C: Tensor) -> Tensor:
        """The 3x3 kernel of each image and channel, from its mean token."""
        with full_precision(x_mean_B1C):
            mean_BC1 = x_mean_B1C.transpose(1, 2).to(self.local_kernel[0].weight.dtype)
            return self.local_kernel(mean_BC1).unflatten(1, (-1, 3, 3)).squeeze(-1)


class SoftmaxAttention(BaseModule):
    """Softmax attention in windows, with relative position bias, as in Swin.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        window_size: Side of the windows.
        shifted: Whether windows are shifted by half their side. Cells that the shift brings
            together from different sides of the map do not see each other.
        drop_rate: Dropout after the output projection.
        init_cfg: As everywhere in OpenMMLab.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: int = 7,
        shifted: bool = False,
        drop_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_heads(embed_dims, num_heads)
        self.num_heads = num_heads
        self.window_size = window_size
        self.shifted = shifted
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.drop = nn.Dropout(drop_rate)
        span = 2 * window_size - 1
        self.relative_position_bias_table = nn.Parameter(torch.zeros(span**2, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.register_buffer('position_index', _position_index(window_size), persistent=False)
        self.register_buffer('side_masks', _side_masks(window_size), persistent=False)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        shift = window_shift(hw_shape, self.window_size, self.shifted)
        windows = split_windows(x_BLC, hw_shape, self.window_size, shift)
        if is_exporting():
            masked_shift = shift if self.shifted else None
            mixed = softmax_windows(
                self.qkv(windows),
                self.num_heads,
                self.position_bias(),
                self.side_masks,
                masked_shift,
            )
        elif shift:
            upper = self.mix_windows(windows[:, :-1], shifted=True)
            lowest = self.mix_windows(windows[:, -1:], shifted=True, lowest=True)
            mixed = torch.cat([upper, lowest], dim=1)
        else:
            mixed = self.mix_windows(windows)
        mixed_BLC = merge_windows(mixed, hw_shape, self.window_size, shift)
        return self.drop(call_linear(self.proj, mixed_BLC))

    def mix_windows(self, windows: Tensor, shifted: bool = False, lowest: bool = False) -> Tensor:
        """Mix the values of each window of ``(B, rows, columns, window ** 2, C)``.

        Only the last row and the last column of shifted windows hold cells of two sides of
        the map, so four masks serve any number of windows and none is stored for each.

        Args:
            windows: Rows of windows, all of their columns.
            shifted: Whether the map was shifted.
            lowest: Whether these are the last row of a shifted map.
        """
        qkv = call_linear(self.qkv, windows)
        bias_NLL = self.position_bias()
        if not shifted:
            return self._attend(qkv, bias_NLL)
        inner, right, bottom, corner = bias_NLL + self.side_masks[:, None]
        left_bias, last_bias = (bottom, corner) if lowest else (inner, right)
        columns = [
            self._attend(qkv[:, :, :-1], left_bias),
            self._attend(qkv[:, :, -1:], last_bias),
        ]
        return torch.cat(columns, dim=2)

    def position_bias(self) -> Tensor:
        """Bias of each pair of cells of a window, for each head."""
        return self.relative_position_bias_table[self.position_index].permute(2, 0, 1)

    def _attend(self, qkv: Tensor, bias_NLL: Tensor) -> Tensor:
        q, k, v = qkv.flatten(0, 2).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias_NLL.to(q.dtype)[None])
        return mixed.transpose(1, 2).flatten(-2).unflatten(0, qkv.shape[:3])


def _position_index(window: int) -> Tensor:
    """Row of the bias table for each pair of query and key in a window."""
    cells = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing='ij'))
    cells = cells.flatten(1)
    dy, dx = cells[:, :, None] - cells[:, None, :]
    return (dy + window - 1) * (2 * window - 1) + dx + window - 1


def _side_masks(window: int) -> Tensor:
    """Masks of windows inside, at the right, at the bottom and in the corner of the map.

    After the shift the last window holds cells of the far side in its last rows or columns;
    where the seam runs depends on the window alone, not on the grid.
    """
    beyond_seam = torch.arange(window) >= window - window // 2
    below = beyond_seam.repeat_interleave(window)
    beside = beyond_seam.repeat(window)
    crosses_row = below[:, None] != below[None]
    crosses_column = beside[:, None] != beside[None]
    none = torch.zeros_like(crosses_row)
    crossings = torch.stack([none, crosses_column, crosses_row, crosses_row | crosses_column])
    return torch.zeros(crossings.shape).masked_fill(crossings, float('-inf'))
