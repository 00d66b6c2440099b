"""Weights of an attention layer on one input, for the queries that are asked for.

A layer over a large map has more weights than fit into memory, so nothing here ever holds them
all: analyses ask for chunks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..functional import local_residual

# Weights that are held at a time: 64 MB in float32.
CHUNK_WEIGHTS = 1 << 24
EVERYTHING = slice(None)


@dataclass
class AttentionWeights:
    """Queries, keys and values of a layer on an input, and the rule that makes them weights.

    Tokens come in groups that see each other: B is images x windows, or images where a layer
    sees the whole map. Rows are queries of a group; padding of windows is among them.

    Args:
        kind: Name of the rule, such as 'inline', 'linear' or 'softmax'.
        rule: From queries and keys to weights, ``rule(q_BNLD, k_BNMD, visible_BNLM=...)``, and
            with ``bias_NLM=...`` where there is a bias. Weights are those among the visible
            keys, as if there were no others, and 0 for the rest.
        q_BNLD: Queries, before the feature map.
        k_BNMD: Keys, after it.
        v_BNMD: Values.
        hw_shape: Height and width of the map.
        grid: Height and width of the queries of a group, those in front of it left out.
        cell_BL: Index of the cell of the map that each query stands on, -1 for padding and for
            tokens in front of the grid.
        feature_map: Map of queries.
        reduction: Side of the square of queries for which there is one key, as in PVT.
        bias_NLM: Added to the scores, if the layer has a position bias.
        q_region_BL: A query sees the keys of its region only, where this and the next are given.
        k_region_BM: Regions of the keys.
        kernel_BC33: Kernels of the local residual, if the layer has one.
        num_extra_tokens: Queries and keys in front of the grid, such as those of a class token.
        finish: From mixed values, as ``mix`` gives them, to the output of the layer.
    """

    kind: str
    rule: Callable[..., Tensor]
    q_BNLD: Tensor
    k_BNMD: Tensor
    v_BNMD: Tensor
    hw_shape: tuple[int, int]
    grid: tuple[int, int]
    cell_BL: Tensor
    feature_map: Callable[[Tensor], Tensor] = lambda x: x
    reduction: int = 1
    bias_NLM: Tensor | None = None
    q_region_BL: Tensor | None = None
    k_region_BM: Tensor | None = None
    kernel_BC33: Tensor | None = None
    num_extra_tokens: int = 0
    finish: Callable[[Tensor], Tensor] = lambda mixed_BLC: mixed_BLC

    @property
    def key_grid(self) -> tuple[int, int]:
        """Height and width of the keys of a group."""
        return tuple(side // self.reduction for side in self.grid)

    def weights(
        self,
        groups: slice = EVERYTHING,
        rows: slice | Tensor = EVERYTHING,
        visible_BLM: Tensor | None = None,
    ) -> Tensor:
        """Weights of some queries of some groups, ``(B, N, L, M)``.

        Args:
            groups: Which groups.
            rows: Which of their queries.
            visible_BLM: Keys that they may see, instead of those that the layer lets them see.
        """
        q_BNLD = self.feature_map(self.q_BNLD[groups][:, :, rows])
        k_BNMD = self.k_BNMD[groups]
        if visible_BLM is None and self.k_region_BM is not None:
            visible_BLM = self.visible(groups, rows)
        visible_BNLM = None if visible_BLM is None else visible_BLM.unsqueeze(1)
        bias = {} if self.bias_NLM is None else dict(bias_NLM=self.bias_NLM[:, rows])
        return self.rule(q_BNLD, k_BNMD, visible_BNLM=visible_BNLM, **bias)

    def visible(self, groups: slice = EVERYTHING, rows: slice | Tensor = EVERYTHING) -> Tensor:
        """Tell which keys some queries see, ``(B, L, M)``."""
        if self.k_region_BM is None:
            num_groups, num_rows = self.cell_BL[groups][:, rows].shape
            shape = (num_groups, num_rows, self.k_BNMD.shape[2])
            return torch.ones(shape, dtype=torch.bool, device=self.k_BNMD.device)
        q_region_BL = self.q_region_BL[groups][:, rows]
        return q_region_BL.unsqueeze(-1) == self.k_region_BM[groups].unsqueeze(-2)

    def neighbours(
        self, groups: slice = EVERYTHING, rows: slice | Tensor = EVERYTHING, side: int = 3
    ) -> tuple[Tensor, Tensor]:
        """Find the square of keys around some queries, row by row.

        Returns:
            Indices of the keys, ``(L, side ** 2)``, and whether there is one that the query sees,
            ``(B, L, side ** 2)``: not beyond the border, nor padding, nor of another region.
            Tokens in front of the grid have no neighbours.
        """
        height, width = self.key_grid
        device = self.k_BNMD.device
        rows = torch.arange(self.q_BNLD.shape[2], device=device)[rows]
        cell_L = rows - self.num_extra_tokens
        row_L = (cell_L // self.grid[1] // self.reduction).clamp(0, height - 1)
        column_L = (cell_L % self.grid[1] // self.reduction).clamp(max=width - 1)
        steps = torch.arange(side, device=device) - side // 2
        row_LK = row_L[:, None] + steps.repeat_interleave(side)
        column_LK = column_L[:, None] + steps.repeat(side)
        inside_LK = (row_LK >= 0) & (row_LK < height) & (column_LK >= 0) & (column_LK < width)
        inside_LK &= cell_L[:, None] >= 0
        index_LK = row_LK.clamp(0, height - 1) * width + column_LK.clamp(0, width - 1)
        index_LK += self.num_extra_tokens
        seen_BLK = inside_LK.expand(len(self.cell_BL[groups]), -1, -1)
        if self.reduction == 1:
            seen_BLK = seen_BLK & (self.cell_BL[groups][:, index_LK] >= 0)
        if self.k_region_BM is not None:
            region_BL1 = self.q_region_BL[groups][:, rows].unsqueeze(-1)
            seen_BLK = seen_BLK & (self.k_region_BM[groups][:, index_LK] == region_BL1)
        return index_LK, seen_BLK

    def chunks(
        self, max_weights: int = CHUNK_WEIGHTS, rows: Tensor | None = None
    ) -> Iterator[tuple[slice, slice | Tensor]]:
        """Groups and rows that together cover all queries, with few enough weights at a time.

        Args:
            max_weights: How many are few enough; one query at a time is the least.
            rows: Queries of each group, if not all.
        """
        num_groups, num_heads, num_rows, _ = self.q_BNLD.shape
        num_rows = num_rows if rows is None else len(rows)
        row_weights = num_heads * self.k_BNMD.shape[2]
        rows_at_a_time = min(max(max_weights // row_weights, 1), num_rows)
        groups_at_a_time = max(max_weights // (row_weights * num_rows), 1)
        for group in range(0, num_groups, groups_at_a_time):
            for row in range(0, num_rows, rows_at_a_time):
                some = slice(row, row + rows_at_a_time)
                groups = slice(group, group + groups_at_a_time)
                yield groups, some if rows is None else rows[some]

    def mix(self, hide: Callable[[slice, slice], Tensor] | None = None) -> Tensor:
        """Mix the values as the layer does before its output projection, ``(B, L, C)``.

        Args:
            hide: From groups and rows to the keys that those queries have to do without,
                ``(B, L, M)``. The local residual is no part of the attention and stays.
        """
        out_BLND = torch.empty_like(self.q_BNLD.transpose(1, 2))
        for groups, rows in self.chunks():
            visible_BLM = None
            if hide is not None:
                visible_BLM = self.visible(groups, rows) & ~hide(groups, rows)
            mixed_BNLD = self.weights(groups, rows, visible_BLM) @ self.v_BNMD[groups]
            out_BLND[groups, rows] = mixed_BNLD.transpose(1, 2)
        out_BLC = out_BLND.flatten(-2)
        if self.kernel_BC33 is None:
            return out_BLC
        v_BLC = self.v_BNMD.transpose(1, 2).flatten(-2)
        return out_BLC + local_residual(
            v_BLC, self.kernel_BC33, self.grid, num_extra_tokens=self.num_extra_tokens
        )


def split_heads(x_BLC: Tensor, num_heads: int) -> Tensor:
    """Give each head its consecutive channels, ``(B, N, L, D)``."""
    return x_BLC.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def cells_of_whole_map(x_BLC: Tensor, num_extra_tokens: int = 0) -> Tensor:
    """Index the cells of groups that are whole maps; -1 for tokens in front of the grid."""
    cell_L = torch.arange(x_BLC.shape[1], device=x_BLC.device) - num_extra_tokens
    return cell_L.clamp(min=-1).expand(len(x_BLC), -1)
