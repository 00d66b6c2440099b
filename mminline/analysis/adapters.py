"""From attention layers of this project, of mmdet and of mmseg to explicit attention.

Layers of other packages are known by the names of their classes, so none has to be installed.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layers.functional import FEATURE_MAPS
from ..layers.statistics import token_mean
from ..layers.windows import window_shift
from .explicit import ExplicitAttention
from .windows import HwShape, Windows


def _heads(x_BLC: Tensor, num_heads: int) -> Tensor:
    return x_BLC.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _whole_map(x_BLC: Tensor, hw_shape: HwShape) -> Tensor:
    """Cells of groups that are whole maps."""
    return torch.arange(hw_shape[0] * hw_shape[1], device=x_BLC.device).expand(len(x_BLC), -1)


def _inline_windows(layer: nn.Module, hw_shape: HwShape) -> Windows | None:
    if layer.sees_whole_map(hw_shape):
        return None
    shift = window_shift(hw_shape, layer.window_size, layer.shifted)
    return Windows(hw_shape, layer.window_size, shift)


def _read_inline(layer: nn.Module, x_BLC: Tensor, hw_shape: HwShape) -> ExplicitAttention:
    """``InLineAttention``, injective or not."""
    windows = _inline_windows(layer, hw_shape)
    grid, cell_BL, valid_BL1, regions = hw_shape, _whole_map(x_BLC, hw_shape), None, {}
    if windows is not None:
        grid, cell_BL = (windows.side, windows.side), windows.cells(x_BLC.device)[0]
        cell_BL = cell_BL.repeat(len(x_BLC), 1)
        valid_BL1 = (cell_BL >= 0).unsqueeze(-1).to(x_BLC.dtype)
        x_BLC = windows.split(x_BLC)
        # Sides that the shift brings together are not kept apart; only padding is left out.
        regions = dict(q_region_BL=torch.zeros_like(cell_BL), k_region_BM=cell_BL.clamp(max=0))
    qkv = layer.qkv(x_BLC) if valid_BL1 is None else layer.qkv(x_BLC) * valid_BL1
    q_BNLD, k_BNMD, v_BNMD = (_heads(part, layer.num_heads) for part in qkv.chunk(3, dim=-1))
    feature_map = FEATURE_MAPS[layer.feature_map]
    kernel_BC33 = None
    if layer.local_kernel is not None:
        kernel_BC33 = layer.make_kernel(token_mean(x_BLC, valid_BL1))
    return ExplicitAttention(
        'inline' if layer.injective else 'linear',
        q_BNLD,
        feature_map(k_BNMD),
        v_BNMD,
        hw_shape,
        grid,
        cell_BL,
        layer.scale,
        feature_map,
        kernel_BC33=kernel_BC33,
        **regions,
    )


def _finish_inline(layer: nn.Module, mixed: Tensor, x_BLC: Tensor, hw_shape: HwShape) -> Tensor:
    windows = _inline_windows(layer, hw_shape)
    return layer.drop(layer.proj(mixed if windows is None else windows.merge(mixed)))


def _softmax_windows(layer: nn.Module, hw_shape: HwShape) -> Windows:
    if hasattr(layer, 'shift_size'):  # OpenMMLab's, which shifts small maps too
        return Windows(hw_shape, layer.window_size, layer.shift_size)
    shift = window_shift(hw_shape, layer.window_size, layer.shifted)
    return Windows(hw_shape, layer.window_size, shift)


def _read_windows(
    layer: nn.Module, inner: nn.Module, index: Tensor, x_BLC: Tensor, hw_shape: HwShape
) -> ExplicitAttention:
    """Softmax in windows with relative position bias; ``inner`` has the parameters."""
    windows = _softmax_windows(layer, hw_shape)
    cell_BL, region_BL = (part.repeat(len(x_BLC), 1) for part in windows.cells(x_BLC.device))
    qkv = inner.qkv(windows.split(x_BLC))
    q_BNLD, k_BNMD, v_BNMD = (_heads(part, inner.num_heads) for part in qkv.chunk(3, dim=-1))
    return ExplicitAttention(
        'softmax',
        q_BNLD,
        k_BNMD,
        v_BNMD,
        hw_shape,
        (windows.side, windows.side),
        cell_BL,
        getattr(inner, 'scale', q_BNLD.shape[-1] ** -0.5),
        bias_NLM=inner.relative_position_bias_table[index].permute(2, 0, 1),
        q_region_BL=region_BL,
        k_region_BM=region_BL,
    )


def _read_softmax(layer: nn.Module, x_BLC: Tensor, hw_shape: HwShape) -> ExplicitAttention:
    return _read_windows(layer, layer, layer.position_index, x_BLC, hw_shape)


def _finish_softmax(layer: nn.Module, mixed: Tensor, x_BLC: Tensor, hw_shape: HwShape) -> Tensor:
    return layer.drop(layer.proj(_softmax_windows(layer, hw_shape).merge(mixed)))


def _read_swin(layer: nn.Module, x_BLC: Tensor, hw_shape: HwShape) -> ExplicitAttention:
    """``ShiftWindowMSA`` of mmdet and mmseg."""
    return _read_windows(layer, layer.w_msa, layer.w_msa.relative_position_index, x_BLC, hw_shape)


def _finish_swin(layer: nn.Module, mixed: Tensor, x_BLC: Tensor, hw_shape: HwShape) -> Tensor:
    merged_BLC = _softmax_windows(layer, hw_shape).merge(mixed)
    return layer.drop(layer.w_msa.proj_drop(layer.w_msa.proj(merged_BLC)))


def _read_pvt(
    layer: nn.Module, x_BLC: Tensor, hw_shape: HwShape, identity: Tensor | None = None
) -> ExplicitAttention:
    """``SpatialReductionAttention`` of mmdet, ``EfficientMultiheadAttention`` of mmseg."""
    keys_BMC = x_BLC
    if layer.sr_ratio > 1:
        map_BCHW = x_BLC.transpose(1, 2).unflatten(2, hw_shape)
        keys_BMC = layer.norm(layer.sr(map_BCHW).flatten(2).transpose(1, 2))
    inner = layer.attn
    biases = (None,) * 3 if inner.in_proj_bias is None else inner.in_proj_bias.chunk(3)
    q_BNLD, k_BNMD, v_BNMD = (
        _heads(F.linear(tokens, weight, bias), inner.num_heads)
        for tokens, weight, bias in zip(
            (x_BLC, keys_BMC, keys_BMC), inner.in_proj_weight.chunk(3), biases, strict=True
        )
    )
    return ExplicitAttention(
        'softmax',
        q_BNLD,
        k_BNMD,
        v_BNMD,
        hw_shape,
        hw_shape,
        _whole_map(x_BLC, hw_shape),
        q_BNLD.shape[-1] ** -0.5,
        reduction=layer.sr_ratio,
    )


def _finish_pvt(
    layer: nn.Module,
    mixed: Tensor,
    x_BLC: Tensor,
    hw_shape: HwShape,
    identity: Tensor | None = None,
) -> Tensor:
    identity = x_BLC if identity is None else identity
    return identity + layer.dropout_layer(layer.proj_drop(layer.attn.out_proj(mixed)))


class Adapter(NamedTuple):
    """Both ways between a layer and explicit attention; arguments are those of the layer."""

    read: Callable[..., ExplicitAttention]  # layer, arguments
    finish: Callable[..., Tensor]  # layer, mixed values as ``ExplicitAttention.mix`` has them, ...


ADAPTERS = {
    'InLineAttention': Adapter(_read_inline, _finish_inline),
    'SoftmaxAttention': Adapter(_read_softmax, _finish_softmax),
    'ShiftWindowMSA': Adapter(_read_swin, _finish_swin),
    'SpatialReductionAttention': Adapter(_read_pvt, _finish_pvt),
    'EfficientMultiheadAttention': Adapter(_read_pvt, _finish_pvt),
}
