"""Blocks in bands of rows, for inference in bounded memory.

Nothing but a few statistics ties distant tokens together, so a block runs in two passes over
bands that stay in the cache: the first gathers the statistics, the second does all the rest
and writes its result over its input. The parameters are those of the ordinary block, and so
is the result, up to rounding.
"""

import functools
import os
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _python_dispatch

from .attention import InLineAttention, SoftmaxAttention
from .block import Block
from .covariance import sum_of_products
from .functional import fold_attention, local_residual
from .fused import call_linear, has_hooks, linear
from .statistics import full_precision, token_mean, upcast
from .windows import merge_windows, split_windows, window_shift

BAND_BYTES_VARIABLE = 'MMINLINE_BAND_BYTES'


def streams(block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], wanted: bool | None) -> bool:
    """Whether a block runs in bands.

    Args:
        block: The block.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid.
        wanted: False for never; None for inference on a CPU; True also on other devices.
    """
    if wanted is False or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    # Dropout can be kept on by itself, to sample predictions.
    if torch.is_grad_enabled() or any(part.training for part in block.modules()):
        return False
    if wanted is None and x_BLC.device.type != 'cpu':
        return False
    # Observers such as hooks and FLOP counters expect to see each layer run once.
    if _python_dispatch._get_current_dispatch_mode() is not None or any(
        map(has_hooks, block.modules())
    ):
        return False
    if type(block.attn) is InLineAttention:
        return block.attn.sees_whole_map(hw_shape) and block.attn.folds(x_BLC.shape[1])
    return type(block.attn) is SoftmaxAttention


@functools.cache
def band_bytes(device: str = 'cpu') -> int:
    """Size of the widest tensor of a band.

    A third of the last cache on a CPU; elsewhere enough to keep a GPU busy.
    ``MMINLINE_BAND_BYTES`` overrides both.
    """
    if value := os.environ.get(BAND_BYTES_VARIABLE):
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(
                f'{BAND_BYTES_VARIABLE} has to be a number of bytes from 1 on, got {value!r}'
            )
        return int(value)
    if device != 'cpu':
        return 256 << 20
    sizes = [
        os.sysconf(name)
        for name in ('SC_LEVEL3_CACHE_SIZE', 'SC_LEVEL2_CACHE_SIZE')
        if name in getattr(os, 'sysconf_names', {})
    ]
    return max([size for size in sizes if size > 0], default=24 << 20) // 3


def stream_block(block: Block, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Run a block in bands. The tokens are overwritten; use the returned ones."""
    hidden = block.mlp.fc1.out_features
    band_tokens = max(band_bytes(x_BLC.device.type) // (hidden * x_BLC.element_size()), 1)
    if type(block.attn) is SoftmaxAttention:
        x_BLC = _stream_softmax(block, x_BLC, hw_shape, band_tokens)
    else:
        for image_1LC in x_BLC.split(1):
            _stream_inline(block, image_1LC, hw_shape, band_tokens)
    return x_BLC


def _bands(num_rows: int, row_tokens: int, band_tokens: int) -> Iterator[tuple[int, int]]:
    """First and last row (not included) of each band, of nearly equal sizes."""
    rows = max(band_tokens // row_tokens, 1)
    num_bands = -(-num_rows // rows)
    edges = [index * num_rows // num_bands for index in range(num_bands + 1)]
    return zip(edges[:-1], edges[1:], strict=True)


def _stream_inline(
    block: Block, x_1LC: Tensor, hw_shape: tuple[int, int], band_tokens: int
) -> None:
    attention = block.attn
    height, width = hw_shape
    bands = list(_bands(height, width, band_tokens))
    v_1LC, x_mean_11C, mixing_1CC, offset_11C = _gather(block, x_1LC, width, bands)
    kernel_1C33 = None
    if attention.local_kernel is not None:
        kernel_1C33 = attention.make_kernel(x_mean_11C)
    for top, bottom in bands:
        band_1LC = x_1LC[:, top * width : bottom * width]
        tokens_1LC = block.norm1(band_1LC).to(v_1LC.dtype)
        if kernel_1C33 is None:
            mixed_1LC = torch.baddbmm(offset_11C, tokens_1LC, mixing_1CC)
        else:
            # One row more on each side, where there is one: the 3x3 step looks at it.
            above, below = max(top - 1, 0), min(bottom + 1, height)
            local_1LC = local_residual(
                v_1LC[:, above * width : below * width],
                kernel_1C33,
                (below - above, width),
                offset_11C,
            )
            local_1LC = local_1LC[:, (top - above) * width : (bottom - above) * width]
            mixed_1LC = local_1LC.baddbmm_(tokens_1LC, mixing_1CC)
        band_1LC += call_linear(attention.proj, mixed_1LC)
        band_1LC += block.mlp(block.norm2(band_1LC))


def _gather(
    block: Block, x_1LC: Tensor, width: int, bands: list[tuple[int, int]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First pass: values, mean token, and attention folded into a matrix and an offset.

    Each band is centred by its own means; the means of the bands are put together at the end,
    so no digits are lost to a common offset of the channels.
    """
    attention = block.attn
    v_weight, v_bias = attention.qkv.weight.chunk(3)[2], attention.qkv.bias.chunk(3)[2]
    num_tokens = x_1LC.shape[1]
    v_1LC = None
    products_1CC = 0
    means, shares = [], []
    for top, bottom in bands:
        start, end = top * width, bottom * width
        tokens_1LC = block.norm1(x_1LC[:, start:end])
        values_1LC = linear(tokens_1LC, v_weight, v_bias)
        if v_1LC is None:
            v_1LC = values_1LC.new_empty(x_1LC.shape)
        v_1LC[:, start:end] = values_1LC
        with full_precision(x_1LC):
            means.append(token_mean(tokens_1LC))
            shares.append((end - start) / num_tokens)
            products_1CC += sum_of_products(tokens_1LC, means[-1])
    with full_precision(x_1LC):
        means_1KC = torch.cat(means, dim=1)
        share_1K1 = means_1KC.new_tensor(shares)[None, :, None]
        x_mean_11C = (share_1K1 * means_1KC).sum(dim=1, keepdim=True)
        between_1KC = means_1KC - x_mean_11C
        between_1CC = (share_1K1 * between_1KC).transpose(1, 2) @ between_1KC
        mixing_1CC, offset_11C = fold_attention(
            products_1CC / num_tokens + between_1CC,
            F.linear(x_mean_11C, upcast(v_weight), upcast(v_bias)),
            attention.qkv.weight,
            attention.qkv.bias,
            attention.num_heads,
            attention.scale,
        )
    return v_1LC, x_mean_11C, mixing_1CC.to(v_1LC.dtype), offset_11C.to(v_1LC.dtype)


def _stream_softmax(
    block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], band_tokens: int
) -> Tensor:
    """Attention in groups of rows of windows, then the MLP in bands of tokens."""
    attention = block.attn
    window = attention.window_size
    shift = window_shift(hw_shape, window, attention.shifted)
    windows = split_windows(x_BLC, hw_shape, window, shift)
    valid = split_windows(x_BLC.new_ones(1, x_BLC.shape[1], 1), hw_shape, window, shift)
    num_rows = windows.shape[1]
    lowest = num_rows - 1 if shift else num_rows
    row_tokens = windows.shape[2] * window**2 * len(x_BLC)
    groups = [*_bands(lowest, row_tokens, band_tokens), *([(lowest, num_rows)] if shift else [])]
    for top, bottom in groups:
        # Padding is zero behind the norm, as in the ordinary block, not in front of it.
        tokens = block.norm1(windows[:, top:bottom]) * valid[:, top:bottom]
        mixed = attention.mix_windows(tokens, shifted=shift > 0, lowest=bottom > lowest)
        windows[:, top:bottom] += call_linear(attention.proj, mixed)
    x_BLC = merge_windows(windows, hw_shape, window, shift).contiguous()
    tokens_LC = x_BLC.flatten(0, 1)
    for start, end in _bands(len(tokens_LC), 1, band_tokens):
        band_LC = tokens_LC[start:end]
        band_LC += block.mlp(block.norm2(band_LC))
    return x_BLC
