"""Forms of layers that an exported graph can hold, for grids of one size or of any.

A graph with open sides can hold no branch on them and no group count that depends on the batch.
What is chosen by size elsewhere is here computed from the size, as a tensor; the values are
the same.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def is_exporting() -> bool:
    """Whether ``torch.export`` is at work; torch 2.6 cannot tell."""
    return getattr(torch.compiler, 'is_exporting', bool)()


def is_open(sizes: Sequence[int]) -> bool:
    """Whether ``torch.export`` is to leave any of these sizes open."""
    return is_exporting() and any(isinstance(size, torch.SymInt) for size in sizes)


def open_shift(hw_shape: tuple[int, int], window: int) -> Tensor:
    """``windows.window_shift`` of a shifted block as a tensor: half a window, or 0."""
    shorter = torch.stack([torch.full((), side) for side in hw_shape]).amin(dim=0)
    return torch.where(shorter > window, window // 2, 0)


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
    """``functional.local_residual`` of an open number of images, in few operations.

    A constant convolution lays the nine neighbours of each cell side by side; each image's
    kernel is then a product with them.
    """
    channels = v_BLC.shape[2]
    one_hot = torch.eye(9, dtype=v_BLC.dtype, device=v_BLC.device).view(9, 1, 3, 3)
    maps_BCHW = v_BLC.transpose(1, 2).unflatten(2, hw_shape)
    patches = F.conv2d(maps_BCHW, one_hot.repeat(channels, 1, 1, 1), padding=1, groups=channels)
    patches_BC9L = patches.flatten(2).unflatten(1, (channels, 9))
    return (kernel_BC33.flatten(2).unsqueeze(2) @ patches_BC9L).squeeze(2).transpose(1, 2)
