"""Forms of blocks that a recorded graph can hold, for grids of one size or of any.

A graph with open sides can hold no branch on them and no group count that depends on the batch.
What is chosen by size elsewhere is here computed from the size, as a tensor; the values are
the same.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from ..layers import Block, InLineAttention, SoftmaxAttention
from ..layers.functional import behind_extra_tokens, grouped_convolution
from ..layers.statistics import token_mean
from ..layers.windows import (
    cut_windows,
    join_windows,
    merge_windows,
    pad_to_multiple,
    split_windows,
    window_shift,
)


def run(module: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], exporting: bool) -> Tensor:
    """Run a block or an attention layer.

    Args:
        module: ``Block`` or attention layer, as it was built.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid, which may be open.
        exporting: Whether the graph leaves PyTorch (``torch.export``), or is compiled by it.
    """
    if not isinstance(module, Block):
        return _run_attention(module, x_BLC, hw_shape, exporting)
    if module.with_cp and module.training:
        return torch.utils.checkpoint.checkpoint(
            _run_block, module, x_BLC, hw_shape, exporting, use_reentrant=False
        )
    return _run_block(module, x_BLC, hw_shape, exporting)


def _run_block(block: Block, x_BLC: Tensor, hw_shape: tuple[int, int], exporting: bool) -> Tensor:
    mixed_BLC = _run_attention(block.attn, block.norm1(x_BLC), hw_shape, exporting)
    x_BLC = x_BLC + block.drop_path(mixed_BLC)
    return x_BLC + block.drop_path(block.mlp(block.norm2(x_BLC)))


def _run_attention(
    layer: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], exporting: bool
) -> Tensor:
    if type(layer) is InLineAttention:
        return _run_inline(layer, x_BLC, hw_shape, exporting)
    if type(layer) is SoftmaxAttention and layer.window_size is not None:
        return _run_softmax(layer, x_BLC, hw_shape, exporting)
    return layer(x_BLC, hw_shape)


def is_open(sizes: Sequence[int]) -> bool:
    """Whether a graph leaves any of these sizes open."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _run_inline(
    layer: InLineAttention, x_BLC: Tensor, hw_shape: tuple[int, int], exporting: bool
) -> Tensor:
    # One window that holds the whole map gives the same, so an open grid may always be cut.
    whole = layer.window_size is None if is_open(hw_shape) else layer.windows(hw_shape) is None
    if whole:
        return layer.project(_mix_inline(layer, x_BLC, hw_shape, exporting))
    side = layer.window_size
    valid_1L1 = x_BLC.new_ones(1, x_BLC.shape[1], 1)
    shift = _shift(hw_shape, side, layer.shifted)
    windows, valid = (_split(tokens, hw_shape, side, shift) for tokens in (x_BLC, valid_1L1))
    valid_BL1 = valid.expand(x_BLC.shape[0], -1, -1, -1, -1).flatten(0, 2)
    mixed = _mix_inline(layer, windows.flatten(0, 2), (side, side), exporting, valid_BL1)
    return layer.project(_merge(mixed.view_as(windows), hw_shape, side, shift))


def _mix_inline(
    layer: InLineAttention,
    x_BLC: Tensor,
    hw_shape: tuple[int, int],
    exporting: bool,
    valid_BL1: Tensor | None = None,
) -> Tensor:
    """Mix as ``InLineAttention.mix``, folded for any number of tokens: one graph, not two."""
    x_mean_B1C = token_mean(x_BLC, valid_BL1)
    folds = layer.has_folded_form() and layer.folded is not False
    if valid_BL1 is None and folds:
        mixed_BLC, v_BLC = layer.mix_folded(x_BLC, x_mean_B1C)
    else:
        mixed_BLC, v_BLC = layer.mix_qkv(layer.qkv(x_BLC), valid_BL1)
    if layer.local_kernel is None:
        return mixed_BLC
    if not exporting:
        run_step = shifted_sum
    else:
        run_step = patch_products if is_open(v_BLC.shape[:1]) else grouped_convolution
    kernel_BC33 = layer.make_kernel(x_mean_B1C).to(v_BLC.dtype)
    extra = layer.num_extra_tokens
    local_BLC = run_step(v_BLC[:, extra:], kernel_BC33, hw_shape)
    return mixed_BLC + behind_extra_tokens(local_BLC, extra)


def _run_softmax(
    layer: SoftmaxAttention, x_BLC: Tensor, hw_shape: tuple[int, int], exporting: bool
) -> Tensor:
    side = layer.window_size
    shift = _shift(hw_shape, side, layer.shifted)
    windows = _split(x_BLC, hw_shape, side, shift)
    if exporting:
        masked_shift = shift if layer.shifted else None
        mixed = softmax_windows(
            layer.qkv(windows),
            layer.num_heads,
            layer.position_bias(),
            layer.side_masks,
            masked_shift,
        )
    else:
        mixed = layer.mix_windows(windows, shift)
    return layer.project(_merge(mixed, hw_shape, side, shift))


def _shift(hw_shape: tuple[int, int], window: int, shifted: bool) -> int | Tensor:
    """``windows.window_shift``, as a tensor for an open grid."""
    if not shifted or not is_open(hw_shape):
        return window_shift(hw_shape, window, shifted)
    shorter = torch.stack([torch.full((), side) for side in hw_shape]).amin(dim=0)
    return torch.where(shorter > window, window // 2, 0)


def _split(x_BLC: Tensor, hw_shape: tuple[int, int], window: int, shift: int | Tensor) -> Tensor:
    if not isinstance(shift, Tensor):
        return split_windows(x_BLC, hw_shape, window, shift, always_pad=True)
    x_BHWC = pad_to_multiple(x_BLC.unflatten(1, hw_shape), window, always=True)
    return cut_windows(take_rolled(x_BHWC, -shift, x_BHWC.shape[1:3]), window)


def _merge(windows: Tensor, hw_shape: tuple[int, int], window: int, shift: int | Tensor) -> Tensor:
    if not is_open(hw_shape):
        return merge_windows(windows, hw_shape, window, shift)
    return take_rolled(join_windows(windows, window), shift, hw_shape).flatten(1, 2)


def take_rolled(x_BHWC: Tensor, shift: Tensor | int, hw_shape: tuple[int, int]) -> Tensor:
    """Roll a grid down and right by ``shift`` cells and keep its first rows and columns."""
    for dim, kept in enumerate(hw_shape, start=1):
        side = x_BHWC.shape[dim]
        cells = torch.arange(kept, device=x_BHWC.device) - shift
        # ONNX has no remainder of an open side.
        cells = torch.where(cells < 0, cells + side, cells)
        cells = torch.where(cells < side, cells, cells - side)
        x_BHWC = x_BHWC.index_select(dim, cells)
    return x_BHWC


def softmax_windows(
    qkv: Tensor, num_heads: int, bias_NLL: Tensor, side_masks: Tensor, shift: Tensor | int | None
) -> Tensor:
    """Softmax attention in any number of windows, ``(B, rows, columns, window ** 2, 3C)``.

    Written out: the fused attention of PyTorch lays its result out in memory as no other
    operation does, and a graph that was traced with it cannot be converted.

    Args:
        qkv: Queries, keys and values of the windows.
        num_heads: Heads.
        bias_NLL: Relative position bias.
        side_masks: Masks of windows inside, at the right, at the bottom and in the corner.
        shift: Cells by which a shifted block rolled its grid; None for other blocks.
    """
    q, k, v = qkv.unflatten(-1, (3, num_heads, -1)).movedim(-3, 0).transpose(-3, -2)
    if shift is not None:
        lowest, last = (
            (torch.arange(count, device=qkv.device) == count - 1) & (shift > 0)
            for count in qkv.shape[1:3]
        )
        bias_NLL = bias_NLL + side_masks[2 * lowest[:, None] + last].unsqueeze(2)
    weights = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1) + bias_NLL).softmax(dim=-1)
    return (weights @ v).transpose(-3, -2).flatten(-2)


def patch_products(v_BLC: Tensor, kernel_BC33: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Run the 3x3 step on an open number of images, in few operations.

    A constant convolution lays the nine neighbours of each cell side by side; each image's
    kernel is then a product with them.
    """
    channels = v_BLC.shape[2]
    one_hot = torch.eye(9, dtype=v_BLC.dtype, device=v_BLC.device).view(9, 1, 3, 3)
    maps_BCHW = v_BLC.transpose(1, 2).unflatten(2, hw_shape)
    patches = F.conv2d(maps_BCHW, one_hot.repeat(channels, 1, 1, 1), padding=1, groups=channels)
    patches_BC9L = patches.flatten(2).unflatten(1, (channels, 9))
    return (kernel_BC33.flatten(2).unsqueeze(2) @ patches_BC9L).squeeze(2).transpose(1, 2)


def shifted_sum(v_BLC: Tensor, kernel_BC33: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Sum nine shifted products: no group count has to be known, and a compiler fuses them."""
    height, width = hw_shape
    padded = F.pad(v_BLC.unflatten(1, hw_shape), (0, 0, 1, 1, 1, 1))
    out = 0
    for dy in range(3):
        for dx in range(3):
            neighbour = padded[:, dy : dy + height, dx : dx + width]
            out = out + neighbour * kernel_BC33[:, None, None, :, dy, dx]
    return out.flatten(1, 2)
