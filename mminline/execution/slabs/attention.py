"""Attention layers on a slab: their statistics are those of the whole grid.

Layers are run through their parts, by ordinary module calls, so that adapters and hooks on the
linears, autocast and sharded parameters keep their effect.
"""

import torch
from torch import Tensor, nn

from ...layers import InLineAttention, SoftmaxAttention, functional
from ...layers.as_built import find_change
from ...layers.statistics import full_precision, token_mean
from .exchange import average_over_slabs, move_rows, sum_over_slabs
from .shape import SlabShape
from .windows import SlabWindowRows


def attend(layer: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Run an attention layer on a grid, or on the own slab of one.

    Args:
        layer: The layer.
        x_BLC: Tokens of the grid or slab.
        hw_shape: Shape of the grid; a ``SlabShape`` for a slab.
    """
    if not isinstance(hw_shape, SlabShape):
        return layer(x_BLC, hw_shape)
    kind = type(layer)
    change = find_change(layer, kind, ('forward', 'mix', 'mix_windows'))
    if change is not None:
        raise ValueError(f'{kind.__name__} {change}, so it cannot run over several processes')
    if kind is SoftmaxAttention and layer.window_size is not None:
        return layer.project(_mix_windows(layer, x_BLC, hw_shape))
    if kind is InLineAttention and layer.windows(hw_shape.whole) is None:
        return layer.project(_mix_inline(layer, x_BLC, hw_shape))
    limit = f' with window_size={layer.window_size}' if hasattr(layer, 'window_size') else ''
    raise ValueError(
        f'{kind.__name__}{limit} cannot run over several processes: InLineAttention over the '
        'whole map and SoftmaxAttention in windows can'
    )


def mix_qkv(
    layer: InLineAttention, qkv: Tensor, hw_shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Mix as ``InLineAttention.mix_qkv``, by statistics of all slabs.

    Returns:
        Mixed values and values, both ``(B, L, C)``.
    """
    if not isinstance(hw_shape, SlabShape):
        return layer.mix_qkv(qkv)
    q_BNLD, k_BNLD, v_BNLD = layer.split_qkv(qkv)
    with full_precision(qkv):
        if layer.injective:
            v_mean_BN1D = average_over_slabs(token_mean(v_BNLD), hw_shape)
            covariance_BNDD = functional.key_value_covariance(
                k_BNLD, v_BNLD, v_mean_BN1D, layer.scale
            )
            covariance_BNDD = average_over_slabs(covariance_BNDD, hw_shape)
            mixed_BNLD = functional.mix_by_covariance(
                q_BNLD, covariance_BNDD, v_mean_BN1D, v_BNLD.dtype
            )
        else:
            sums = functional.key_value_sums(k_BNLD, v_BNLD)
            sums = (sum_over_slabs(part, hw_shape) for part in sums)
            mixed_BNLD = functional.mix_by_sums(q_BNLD, *sums, v_BNLD.dtype)
    return mixed_BNLD.transpose(1, 2).flatten(-2), qkv.chunk(3, dim=-1)[2]


def local_residual(
    v_BLC: Tensor,
    kernel_BC33: Tensor,
    hw_shape: tuple[int, int],
    offset_B1C: Tensor | None = None,
    num_extra_tokens: int = 0,
) -> Tensor:
    """Run the 3x3 step of ``layers.local_residual``, with the rows next to a slab."""
    if not isinstance(hw_shape, SlabShape):
        return functional.local_residual(v_BLC, kernel_BC33, hw_shape, offset_B1C, num_extra_tokens)
    height, width = hw_shape
    above_BLC, below_BLC = neighbour_rows(v_BLC, hw_shape)
    start = above_BLC.shape[1]
    v_BLC = torch.cat([above_BLC, v_BLC, below_BLC], dim=1)
    shape = (v_BLC.shape[1] // width, width)
    out_BLC = functional.local_residual(v_BLC, kernel_BC33, shape, offset_B1C)
    return out_BLC[:, start : start + height * width]


def neighbour_rows(v_BLC: Tensor, slab: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Fetch the row above a slab and the row below it; none at the ends of the grid."""
    if not isinstance(slab, SlabShape):
        return v_BLC[:, :0], v_BLC[:, :0]
    wide = list(zip(slab.rows, slab.widened(1), strict=True))
    above = [(outer[0], rows[0]) for rows, outer in wide]
    below = [(rows[1], outer[1]) for rows, outer in wide]
    return tuple(move_rows(v_BLC, slab, slab.rows, want) for want in (above, below))


def _mix_inline(layer: InLineAttention, x_BLC: Tensor, slab: SlabShape) -> Tensor:
    mixed_BLC, v_BLC = mix_qkv(layer, layer.qkv(x_BLC), slab)
    if layer.local_kernel is None:
        return mixed_BLC
    kernel_BC33 = layer.make_kernel(average_over_slabs(token_mean(x_BLC), slab))
    return mixed_BLC + local_residual(v_BLC, kernel_BC33, slab)


def _mix_windows(layer: SoftmaxAttention, x_BLC: Tensor, slab: SlabShape) -> Tensor:
    rows = SlabWindowRows(slab, layer.window_size, layer.shifted)
    qkv = layer.qkv(rows.split(x_BLC))
    mixed = [
        layer.mix_rows(qkv[:, first:last], shifted=rows.shift > 0, lowest=at_seam)
        for first, last, at_seam in rows.runs()
    ]
    return rows.merge(torch.cat(mixed, dim=1))
