"""Blocks in bands of rows, for inference in bounded memory.

Nothing but a few statistics ties distant tokens together, so a block runs in two passes over
bands that stay in the cache: the first gathers the statistics, the second does all the rest.
Of the tokens of a whole map only the input and one more tensor exist, which first holds the
values and then, band by band, the output.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layers import Block, SoftmaxAttention
from ..layers.functional import behind_extra_tokens, fold_attention, local_residual
from ..layers.statistics import full_precision, token_mean, upcast
from . import cache
from .covariance import sum_of_products
from .linear import linear, product
from .mlp import run_mlp
from .slabs import average_over_slabs, neighbour_rows
from .slabs.windows import window_rows


def run(block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], one_pass: bool) -> Tensor:
    """Run a block in bands.

    Args:
        block: The block, as it was built, with InLine attention that folds or with softmax
            attention in windows.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid.
        one_pass: Whether linears take bias and GELU along in one pass.
    """
    hidden = block.mlp.fc1.out_features
    band_tokens = max(cache.band_bytes(x_BLC.device.type) // (hidden * x_BLC.element_size()), 1)
    if type(block.attn) is SoftmaxAttention:
        return _stream_softmax(block, x_BLC, hw_shape, band_tokens, one_pass)
    out_BLC = torch.empty_like(x_BLC, memory_format=torch.contiguous_format)
    for image_1LC, out_1LC in zip(x_BLC.split(1), out_BLC.split(1), strict=True):
        _stream_inline(block, image_1LC, out_1LC, hw_shape, band_tokens, one_pass)
    return out_BLC


def _bands(num_rows: int, row_tokens: int, band_tokens: int) -> Iterator[tuple[int, int]]:
    """First and last row (not included) of each band, of nearly equal sizes."""
    rows = max(band_tokens // row_tokens, 1)
    num_bands = -(-num_rows // rows)
    edges = [index * num_rows // num_bands for index in range(num_bands + 1)]
    return zip(edges[:-1], edges[1:], strict=True)


def _band_slice(top: int, bottom: int, width: int, num_extra_tokens: int) -> slice:
    """Tokens of a band; those in front of the grid go with the first one."""
    return slice(num_extra_tokens + top * width if top else 0, num_extra_tokens + bottom * width)


def _stream_inline(
    block: Block,
    x_1LC: Tensor,
    out_1LC: Tensor,
    hw_shape: tuple[int, int],
    band_tokens: int,
    one_pass: bool,
) -> None:
    """Run a block on one image and write the result to ``out_1LC``."""
    height, width = hw_shape
    extra = block.attn.num_extra_tokens
    bands = list(_bands(height, width, band_tokens))
    slices = [_band_slice(top, bottom, width, extra) for top, bottom in bands]
    v_1LC, x_mean_11C, mixing_1CC, offset_11C = _gather(
        block, x_1LC, out_1LC, hw_shape, slices, one_pass
    )
    local = None
    if block.attn.local_kernel is not None:
        kernel_1C33 = block.attn.make_kernel(x_mean_11C)
        local = _LocalResidual(v_1LC[:, extra:], kernel_1C33, offset_11C, hw_shape)
    for (top, bottom), band in zip(bands, slices, strict=True):
        x_band_1LC = x_1LC[:, band]
        tokens_1LC = block.norm1(x_band_1LC).to(mixing_1CC.dtype)
        if local is None:
            mixed_1LC = torch.baddbmm(offset_11C, tokens_1LC, mixing_1CC)
        else:
            local_1LC = behind_extra_tokens(
                local.band(top, bottom), 0 if top else extra, offset_11C
            )
            mixed_1LC = local_1LC.baddbmm_(tokens_1LC, mixing_1CC)
        band_1LC = out_1LC[:, band]
        torch.add(x_band_1LC, linear(block.attn.proj, mixed_1LC, one_pass), out=band_1LC)
        band_1LC += run_mlp(block.mlp, block.norm2(band_1LC), one_pass)


class _LocalResidual:
    """Apply the 3x3 step to bands of values whose memory the output takes over, band by band.

    A band looks at one row more on each side. The row above has been overwritten by then, so its
    values are kept and put back for the time of the step.
    """

    def __init__(
        self, v_1LC: Tensor, kernel_1C33: Tensor, offset_11C: Tensor, hw_shape: tuple[int, int]
    ) -> None:
        self.v_1LC = v_1LC
        self.kernel_1C33 = kernel_1C33
        self.offset_11C = offset_11C
        self.height, self.width = hw_shape
        self.row_above = None
        self.outer_above, self.outer_below = neighbour_rows(v_1LC, hw_shape)

    def band(self, top: int, bottom: int) -> Tensor:
        """Return the step for rows ``[top, bottom)``; to be asked for from top to bottom."""
        width = self.width
        above, below = max(top - 1, 0), min(bottom + 1, self.height)
        row = self.v_1LC[:, above * width : top * width]
        overwritten = row.clone()
        if self.row_above is not None:
            row.copy_(self.row_above)
        rows_1LC, start = self.v_1LC[:, above * width : below * width], (top - above) * width
        if top == 0 and self.outer_above.shape[1]:
            rows_1LC, start = torch.cat([self.outer_above, rows_1LC], dim=1), width
        if bottom == self.height and self.outer_below.shape[1]:
            rows_1LC = torch.cat([rows_1LC, self.outer_below], dim=1)
        shape = (rows_1LC.shape[1] // width, width)
        local_1LC = local_residual(rows_1LC, self.kernel_1C33, shape, self.offset_11C)
        row.copy_(overwritten)
        self.row_above = self.v_1LC[:, (bottom - 1) * width : bottom * width].clone()
        return local_1LC[:, start : start + (bottom - top) * width]


def _gather(
    block: Block,
    x_1LC: Tensor,
    out_1LC: Tensor,
    hw_shape: tuple[int, int],
    bands: list[slice],
    one_pass: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First pass: values, mean token, and attention folded into a matrix and an offset.

    Each band is centred by its own means; the means of the bands are put together at the end,
    so no digits are lost to a common offset of the channels.
    """
    attention = block.attn
    qkv = attention.qkv
    v_weight, v_bias = qkv.weight.chunk(3)[2], qkv.bias.chunk(3)[2]
    num_tokens = x_1LC.shape[1]
    v_1LC = None
    products_1CC = 0
    means, shares = [], []
    for band in bands:
        tokens_1LC = block.norm1(x_1LC[:, band])
        values_1LC = product(tokens_1LC, v_weight, v_bias, one_pass)
        if v_1LC is None:
            # Autocast makes values of another type, which need memory of their own.
            same = values_1LC.dtype == out_1LC.dtype
            v_1LC = out_1LC if same else values_1LC.new_empty(x_1LC.shape)
        v_1LC[:, band] = values_1LC
        with full_precision(x_1LC):
            means.append(token_mean(tokens_1LC))
            shares.append(tokens_1LC.shape[1] / num_tokens)
            products_1CC += sum_of_products(tokens_1LC, means[-1])
    with full_precision(x_1LC):
        means_1KC = torch.cat(means, dim=1)
        share_1K1 = means_1KC.new_tensor(shares)[None, :, None]
        x_mean_11C = (share_1K1 * means_1KC).sum(dim=1, keepdim=True)
        x_mean_11C = average_over_slabs(x_mean_11C, hw_shape)
        between_1KC = means_1KC - x_mean_11C
        between_1CC = (share_1K1 * between_1KC).transpose(1, 2) @ between_1KC
        covariance_1CC = average_over_slabs(products_1CC / num_tokens + between_1CC, hw_shape)
        v_mean_11C = F.linear(x_mean_11C, upcast(v_weight), upcast(v_bias))
        mixing_1CC, offset_11C = fold_attention(
            covariance_1CC, v_mean_11C, qkv.weight, qkv.bias, attention.num_heads, attention.scale
        )
    return v_1LC, x_mean_11C, mixing_1CC.to(v_1LC.dtype), offset_11C.to(v_1LC.dtype)


def _stream_softmax(
    block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], band_tokens: int, one_pass: bool
) -> Tensor:
    """Attention in groups of rows of windows, then the MLP in bands of tokens."""
    attention = block.attn
    rows = window_rows(hw_shape, attention.window_size, attention.shifted)
    windows = rows.split(x_BLC)
    if windows.untyped_storage().data_ptr() == x_BLC.untyped_storage().data_ptr():
        windows = windows.clone()  # they are overwritten, and the tokens are not ours
    valid = rows.mark_tokens(x_BLC)
    row_tokens = windows.shape[2] * attention.window_size**2 * len(x_BLC)
    for first, last, at_seam in rows.runs():
        for top, bottom in _bands(last - first, row_tokens, band_tokens):
            band = slice(first + top, first + bottom)
            # Padding is zero behind the norm, as in the ordinary block, not in front of it.
            tokens = block.norm1(windows[:, band]) * valid[:, band]
            qkv = linear(attention.qkv, tokens, one_pass)
            mixed = attention.mix_rows(qkv, shifted=rows.shift > 0, lowest=at_seam)
            windows[:, band] += linear(attention.proj, mixed, one_pass)
    x_BLC = rows.merge(windows).contiguous()
    tokens_1LC = x_BLC.view(1, -1, x_BLC.shape[-1])
    for start, end in _bands(tokens_1LC.shape[1], 1, band_tokens):
        band_1LC = tokens_1LC[:, start:end]
        band_1LC += run_mlp(block.mlp, block.norm2(band_1LC), one_pass)
    return x_BLC
