"""Softmax attention, in windows with relative position bias as in Swin, or over the whole map."""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ...registry import MODELS
from ..windows import Windows, merge_windows, split_windows, window_shift
from .checks import check_extra_tokens, check_heads, check_tokens
from .weights import AttentionWeights, cells_of_whole_map, split_heads


@MODELS.register_module()
class SoftmaxAttention(BaseModule):
    """Softmax attention, called as ``layer(x_BLC, hw_shape)``.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        window_size: Side of the windows, in which there is a relative position bias. None for
            the whole map, without a bias, at a cost quadratic in tokens.
        shifted: Whether windows are shifted by half their side. Cells that the shift brings
            together from different sides of the map do not see each other.
        drop_rate: Dropout after the output projection.
        num_extra_tokens: Tokens in front of the grid, such as a class token, for the whole map.
        init_cfg: As everywhere in OpenMMLab.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: int | None = 7,
        shifted: bool = False,
        drop_rate: float = 0.0,
        num_extra_tokens: int = 0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_heads(embed_dims, num_heads)
        if window_size is not None and window_size < 1:
            raise ValueError(f'window_size has to be None or at least 1, got {window_size=}')
        check_extra_tokens(num_extra_tokens, window_size)
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.window_size = window_size
        self.shifted = shifted
        self.num_extra_tokens = num_extra_tokens
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.drop = nn.Dropout(drop_rate)
        if window_size is not None:
            span = 2 * window_size - 1
            self.relative_position_bias_table = nn.Parameter(torch.zeros(span**2, num_heads))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
            self.register_buffer('position_index', _position_index(window_size), persistent=False)
            self.register_buffer('side_masks', _side_masks(window_size), persistent=False)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        check_tokens(x_BLC, hw_shape, self.embed_dims, self.num_extra_tokens)
        if self.window_size is None:
            return self.project(self._attend(self.qkv(x_BLC)[:, None, None]).flatten(1, 3))
        shift = window_shift(hw_shape, self.window_size, self.shifted)
        windows = split_windows(x_BLC, hw_shape, self.window_size, shift)
        mixed = self.mix_windows(windows, shift)
        return self.project(merge_windows(mixed, hw_shape, self.window_size, shift))

    def mix_windows(self, windows: Tensor, shift: int) -> Tensor:
        """Mix the values of each window of ``(B, rows, columns, window ** 2, C)``."""
        qkv = self.qkv(windows)
        if not shift:
            return self.mix_rows(qkv)
        upper = self.mix_rows(qkv[:, :-1], shifted=True)
        lowest = self.mix_rows(qkv[:, -1:], shifted=True, lowest=True)
        return torch.cat([upper, lowest], dim=1)

    def mix_rows(self, qkv: Tensor, shifted: bool = False, lowest: bool = False) -> Tensor:
        """Mix the values of rows of windows, ``(B, rows, columns, window ** 2, 3C)``.

        Only the last row and the last column of shifted windows hold cells of two sides of
        the map, so four masks serve any number of windows and none is stored for each.

        Args:
            qkv: Queries, keys and values of rows of windows, all of their columns.
            shifted: Whether the map was shifted.
            lowest: Whether these are the last row of a shifted map.
        """
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
        """Look up the bias of each pair of cells of a window, for each head."""
        return self.relative_position_bias_table[self.position_index].permute(2, 0, 1)

    def project(self, mixed_BLC: Tensor) -> Tensor:
        """Finish the layer: output projection and dropout."""
        return self.drop(self.proj(mixed_BLC))

    def _attend(self, qkv: Tensor, bias_NLL: Tensor | None = None) -> Tensor:
        q, k, v = qkv.flatten(0, 2).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        bias = None if bias_NLL is None else bias_NLL.to(q.dtype)[None]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return mixed.transpose(1, 2).flatten(-2).unflatten(0, qkv.shape[:3])

    def attention_weights(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> AttentionWeights:
        """Read the layer's attention on an input, for tests and analysis."""
        if self.window_size is None:
            q, k, v = (split_heads(part, self.num_heads) for part in self.qkv(x_BLC).chunk(3, -1))
            return AttentionWeights(
                'softmax',
                functools.partial(softmax_weights, scale=q.shape[-1] ** -0.5),
                q,
                k,
                v,
                hw_shape,
                hw_shape,
                cells_of_whole_map(x_BLC, self.num_extra_tokens),
                num_extra_tokens=self.num_extra_tokens,
                finish=self.project,
            )
        shift = window_shift(hw_shape, self.window_size, self.shifted)
        windows = Windows(hw_shape, self.window_size, shift)
        qkv = self.qkv(windows.split(x_BLC))
        return read_windows(qkv, self.num_heads, self.position_bias(), windows, self.project)


def read_windows(
    qkv: Tensor,
    num_heads: int,
    bias_NLL: Tensor,
    windows: Windows,
    project: Callable[[Tensor], Tensor],
    scale: float | None = None,
) -> AttentionWeights:
    """Read softmax attention in windows with relative position bias.

    Args:
        qkv: Queries, keys and values of the windows, ``(images x windows, side ** 2, 3C)``.
        num_heads: Heads.
        bias_NLL: Relative position bias.
        windows: Cut of the map.
        project: From mixed tokens of the map to the output of the layer.
        scale: Factor on the query-key product; ``D ** -0.5`` if not given.
    """
    q_BNLD, k_BNMD, v_BNMD = (split_heads(part, num_heads) for part in qkv.chunk(3, dim=-1))
    cells = windows.cells(qkv.device)
    cell_BL, region_BL = (part.repeat(len(qkv) // len(part), 1) for part in cells)
    return AttentionWeights(
        'softmax',
        functools.partial(softmax_weights, scale=scale or q_BNLD.shape[-1] ** -0.5),
        q_BNLD,
        k_BNMD,
        v_BNMD,
        windows.hw_shape,
        (windows.side, windows.side),
        cell_BL,
        bias_NLM=bias_NLL,
        q_region_BL=region_BL,
        k_region_BM=region_BL,
        finish=lambda mixed: project(windows.merge(mixed)),
    )


def softmax_weights(
    q_BNLD: Tensor,
    k_BNMD: Tensor,
    scale: float,
    bias_NLM: Tensor | None = None,
    visible_BNLM: Tensor | None = None,
) -> Tensor:
    """Weights of softmax attention, ``(B, N, L, M)``."""
    scores_BNLM = scale * q_BNLD @ k_BNMD.transpose(-2, -1)
    if bias_NLM is not None:
        scores_BNLM = scores_BNLM + bias_NLM
    if visible_BNLM is None:
        return scores_BNLM.softmax(dim=-1)
    weights_BNLM = scores_BNLM.masked_fill(~visible_BNLM, -torch.inf).softmax(dim=-1)
    # A query that sees nothing has no weights, not undefined ones.
    return weights_BNLM.masked_fill(~visible_BNLM, 0)


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
