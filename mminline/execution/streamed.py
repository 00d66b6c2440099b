"""Blocks in bands of rows, for inference in bounded memory.

Nothing but a few statistics ties distant tokens together, so a block runs in two passes over
bands that stay in the cache: the first gathers the statistics, the second does all the rest.
Of the tokens of a whole map only the input and one more tensor exist, which first holds the
values and then, band by band, the output. In half precision the values have memory of their own,
and the output first holds the tokens behind the norm.
"""

import itertools
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layers import Block, SoftmaxAttention
from ..layers.functional import behind_extra_tokens, fold_attention, local_residual
from ..layers.statistics import full_precision, upcast
from . import cache
from .linear import linear, product
from .mlp import run_mlp
from .slabs import neighbour_rows
from .slabs.windows import window_rows
from .sums import (
    centred_sums,
    make_kernel,
    merge_centred_sums,
    merge_rows,
    sum_rows,
    sums_by_rows,
)
from .threads import call_on_one_core, count_band_threads, cut_evenly, map_bands


def run(
    block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], one_pass: bool, dtype: torch.dtype
) -> Tensor:
    """Run a block in bands.

    Args:
        block: The block, as it was built, with InLine attention that folds or with softmax
            attention in windows.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid.
        one_pass: Whether linears take bias and GELU along in one pass.
        dtype: Type of the products.
    """
    token_bytes = block.mlp.fc1.out_features * dtype.itemsize
    band_tokens = max(cache.band_bytes(x_BLC.device.type) // token_bytes, 1)
    keeps_tokens = 2 * dtype.itemsize == x_BLC.element_size()
    plan = _Plan(band_tokens, count_band_threads(x_BLC.device), dtype, one_pass, keeps_tokens)
    if type(block.attn) is SoftmaxAttention:
        return _stream_softmax(block, x_BLC, hw_shape, plan)
    out_BLC = torch.empty_like(x_BLC, memory_format=torch.contiguous_format)
    for image_1LC, out_1LC in zip(x_BLC.split(1), out_BLC.split(1), strict=True):
        _stream_inline(block, image_1LC, out_1LC, hw_shape, plan)
    return out_BLC


class _Plan(NamedTuple):
    """How to cut a map into bands and run them.

    Attributes:
        band_tokens: Tokens of a band at the most, if a row is not more.
        num_threads: Bands that run at a time.
        dtype: Type of the products.
        one_pass: Whether linears take bias and GELU along in one pass.
        keeps_tokens: Whether the output, until it is written, holds the tokens behind the norm.
    """

    band_tokens: int
    num_threads: int
    dtype: torch.dtype
    one_pass: bool
    keeps_tokens: bool

    def cut(self, num_rows: int, row_tokens: int) -> list[tuple[int, int]]:
        """First and last row (not included) of each band, of nearly equal sizes."""
        rows = max(self.band_tokens // row_tokens, 1)
        num_bands = -(-num_rows // rows)
        if num_bands > 1:  # as many for each thread, so that none is idle at the end
            num_bands = min(-(-num_bands // self.num_threads) * self.num_threads, num_rows)
        edges = [index * num_rows // num_bands for index in range(num_bands + 1)]
        return list(itertools.pairwise(edges))


def _band_slice(top: int, bottom: int, width: int, num_extra_tokens: int) -> slice:
    """Tokens of a band; those in front of the grid go with the first one."""
    return slice(num_extra_tokens + top * width if top else 0, num_extra_tokens + bottom * width)


def _stream_inline(
    block: Block, x_1LC: Tensor, out_1LC: Tensor, hw_shape: tuple[int, int], plan: _Plan
) -> None:
    """Run a block on one image and write the result to ``out_1LC``."""
    height, width = hw_shape
    extra = block.attn.num_extra_tokens
    bands = plan.cut(height, width)
    slices = [_band_slice(top, bottom, width, extra) for top, bottom in bands]
    v_1LC, mixing_1CC, offset_11C, kernel_1C33 = _gather(
        block, x_1LC, out_1LC, hw_shape, slices, plan
    )
    runs = cut_evenly(len(bands), plan.num_threads)
    local = None
    if kernel_1C33 is not None:
        grid_bands = [
            v_1LC[:, extra + top * width : extra + bottom * width] for top, bottom in bands
        ]
        outer_rows = neighbour_rows(v_1LC[:, extra:], hw_shape)
        local = _LocalResidual(grid_bands, runs, outer_rows, kernel_1C33, offset_11C, width)

    def finish(run: range) -> None:
        for index in run:
            x_band_1LC, band_1LC = x_1LC[:, slices[index]], out_1LC[:, slices[index]]
            if plan.keeps_tokens:
                tokens_1LC = _first_half(band_1LC, plan.dtype)
            else:
                tokens_1LC = block.norm1(x_band_1LC).to(plan.dtype)
            if local is None:
                mixed_1LC = torch.baddbmm(offset_11C, tokens_1LC, mixing_1CC)
            else:
                local_1LC = local.band(index)
                local_1LC = behind_extra_tokens(local_1LC, 0 if index else extra, offset_11C)
                mixed_1LC = local_1LC.baddbmm_(tokens_1LC, mixing_1CC)
            torch.add(x_band_1LC, linear(block.attn.proj, mixed_1LC, plan.one_pass), out=band_1LC)
            tokens_1LC = block.norm2(band_1LC).to(plan.dtype)
            band_1LC += run_mlp(block.mlp, tokens_1LC, plan.one_pass)

    map_bands(finish, runs, plan.num_threads)


def _first_half(band_1LC: Tensor, dtype: torch.dtype) -> Tensor:
    """Memory of a band of the output as one of tokens in half precision."""
    return band_1LC.view(dtype).view(2, -1, band_1LC.shape[2])[:1]


class _LocalResidual:
    """Apply the 3x3 step to bands of values whose memory the output may take over.

    A band looks at one row more on each side, which may have been overwritten by then. So the rows
    at the ends of each run of bands are kept, and within a run the one above the next band.

    Args:
        bands: Values of each band.
        runs: Bands that are asked for one after another, run by run in any order.
        outer_rows: Values above the first band and below the last.
        kernel_1C33: Kernel.
        offset_11C: Added to the result.
        width: Tokens of a row.
    """

    def __init__(
        self,
        bands: list[Tensor],
        runs: list[range],
        outer_rows: tuple[Tensor, Tensor],
        kernel_1C33: Tensor,
        offset_11C: Tensor,
        width: int,
    ) -> None:
        self.bands = bands
        self.kernel_1C33 = kernel_1C33
        self.offset_11C = offset_11C
        self.width = width
        seams = [run.start for run in runs[1:]]
        self.above = {seam: bands[seam - 1][:, -width:].clone() for seam in seams}
        self.below = {seam - 1: bands[seam][:, :width].clone() for seam in seams}
        self.above[0], self.below[len(bands) - 1] = outer_rows

    def band(self, index: int) -> Tensor:
        """Return the step for one band."""
        band_1LC = self.bands[index]
        above_1LC = self.above.pop(index)
        below_1LC = self.below.pop(index, None)
        if below_1LC is None:
            below_1LC = self.bands[index + 1][:, : self.width]
            self.above[index + 1] = band_1LC[:, -self.width :].clone()
        rows_1LC = torch.cat([above_1LC, band_1LC, below_1LC], dim=1)
        shape = (rows_1LC.shape[1] // self.width, self.width)
        local_1LC = local_residual(rows_1LC, self.kernel_1C33, shape, self.offset_11C)
        return local_1LC[:, above_1LC.shape[1] :][:, : band_1LC.shape[1]]


def _gather(
    block: Block,
    x_1LC: Tensor,
    out_1LC: Tensor,
    hw_shape: tuple[int, int],
    bands: list[slice],
    plan: _Plan,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First pass: values, mean token, and attention folded into a matrix and an offset."""
    attention = block.attn
    qkv = attention.qkv
    v_weight, v_bias = qkv.weight.chunk(3)[2], qkv.bias.chunk(3)[2]
    width, extra = hw_shape[1], attention.num_extra_tokens
    by_rows = sums_by_rows(plan.dtype, x_1LC.device, width, attention.embed_dims)
    # Autocast makes values of another type, which need memory of their own.
    v_1LC = out_1LC if plan.dtype == out_1LC.dtype else torch.empty_like(out_1LC, dtype=plan.dtype)

    def gather(band: slice) -> tuple[Tensor, ...]:
        tokens_1LC = block.norm1(x_1LC[:, band])
        narrow_1LC = tokens_1LC.to(plan.dtype)
        if plan.keeps_tokens:
            _first_half(out_1LC[:, band], plan.dtype).copy_(narrow_1LC)
        v_1LC[:, band] = product(narrow_1LC, v_weight, v_bias, plan.one_pass)
        with full_precision(x_1LC):
            if by_rows:
                front = 0 if band.start else extra
                return sum_rows(tokens_1LC, tokens_1LC, width, front)
            return centred_sums(tokens_1LC)

    sums = map_bands(gather, bands, plan.num_threads)

    @full_precision(x_1LC)
    def fold() -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        if by_rows:
            x_mean_11C, covariance_1CC = merge_rows(sums, hw_shape, extra)
        else:
            lengths = [band.stop - band.start for band in bands]
            x_mean_11C, covariance_1CC = merge_centred_sums(sums, hw_shape, lengths)
        v_mean_11C = F.linear(x_mean_11C, upcast(v_weight), upcast(v_bias))
        mixing_1CC, offset_11C = fold_attention(
            covariance_1CC, v_mean_11C, qkv.weight, qkv.bias, attention.num_heads, attention.scale
        )
        kernel_1C33 = None
        if attention.local_kernel is not None:
            kernel_1C33 = make_kernel(attention, x_mean_11C, by_rows)
        return mixing_1CC.to(plan.dtype), offset_11C.to(plan.dtype), kernel_1C33

    return v_1LC, *call_on_one_core(fold, plan.num_threads)


def _stream_softmax(block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], plan: _Plan) -> Tensor:
    """Attention in groups of rows of windows, then the MLP in bands of tokens."""
    attention = block.attn
    rows = window_rows(hw_shape, attention.window_size, attention.shifted)
    windows = rows.split(x_BLC)
    if windows.untyped_storage().data_ptr() == x_BLC.untyped_storage().data_ptr():
        windows = windows.clone()  # they are overwritten, and the tokens are not ours
    valid = rows.mark_tokens(x_BLC)
    row_tokens = windows.shape[2] * attention.window_size**2 * len(x_BLC)

    def attend(band: slice, at_seam: bool) -> None:
        # Padding is zero behind the norm, as in the ordinary block, not in front of it.
        tokens = (block.norm1(windows[:, band]) * valid[:, band]).to(plan.dtype)
        qkv = linear(attention.qkv, tokens, plan.one_pass)
        mixed = attention.mix_rows(qkv, shifted=rows.shift > 0, lowest=at_seam)
        windows[:, band] += linear(attention.proj, mixed, plan.one_pass)

    for first, last, at_seam in rows.runs():
        bands = plan.cut(last - first, row_tokens)
        slices = [slice(first + top, first + bottom) for top, bottom in bands]
        map_bands(partial(attend, at_seam=at_seam), slices, plan.num_threads)
    x_BLC = rows.merge(windows).contiguous()
    tokens_1LC = x_BLC.view(1, -1, x_BLC.shape[-1])

    def run_mlp_on(band: tuple[int, int]) -> None:
        band_1LC = tokens_1LC[:, slice(*band)]
        normed_1LC = block.norm2(band_1LC).to(plan.dtype)
        band_1LC += run_mlp(block.mlp, normed_1LC, plan.one_pass)

    map_bands(run_mlp_on, plan.cut(tokens_1LC.shape[1], 1), plan.num_threads)
    return x_BLC
