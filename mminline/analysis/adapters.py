"""Read the softmax attention layers of mmdet and mmseg as explicit weights.

Layers of this project read themselves (``layer.attention_weights``). Those of other packages are
known by the names of their classes, so none has to be installed.
"""

import functools
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from ..layers.attention import AttentionWeights
from ..layers.attention.softmax import read_windows, softmax_weights
from ..layers.attention.weights import cells_of_whole_map, split_heads
from ..layers.windows import Windows

HwShape = tuple[int, int]


def _read_swin(layer: nn.Module, x_BLC: Tensor, hw_shape: HwShape) -> AttentionWeights:
    """``ShiftWindowMSA`` of mmdet and mmseg, which shifts small maps too."""
    inner = layer.w_msa
    windows = Windows(hw_shape, layer.window_size, layer.shift_size)
    bias_NLL = inner.relative_position_bias_table[inner.relative_position_index].permute(2, 0, 1)

    def project(mixed_BLC: Tensor) -> Tensor:
        return layer.drop(inner.proj_drop(inner.proj(mixed_BLC)))

    qkv = inner.qkv(windows.split(x_BLC))
    return read_windows(qkv, inner.num_heads, bias_NLL, windows, project, inner.scale)


def _read_pvt(
    layer: nn.Module, x_BLC: Tensor, hw_shape: HwShape, identity: Tensor | None = None
) -> AttentionWeights:
    """``SpatialReductionAttention`` of mmdet, ``EfficientMultiheadAttention`` of mmseg."""
    keys_BMC = x_BLC
    if layer.sr_ratio > 1:
        map_BCHW = x_BLC.transpose(1, 2).unflatten(2, hw_shape)
        keys_BMC = layer.norm(layer.sr(map_BCHW).flatten(2).transpose(1, 2))
    inner = layer.attn
    biases = (None,) * 3 if inner.in_proj_bias is None else inner.in_proj_bias.chunk(3)
    q_BNLD, k_BNMD, v_BNMD = (
        split_heads(F.linear(tokens, weight, bias), inner.num_heads)
        for tokens, weight, bias in zip(
            (x_BLC, keys_BMC, keys_BMC), inner.in_proj_weight.chunk(3), biases, strict=True
        )
    )
    identity = x_BLC if identity is None else identity
    return AttentionWeights(
        'softmax',
        functools.partial(softmax_weights, scale=q_BNLD.shape[-1] ** -0.5),
        q_BNLD,
        k_BNMD,
        v_BNMD,
        hw_shape,
        hw_shape,
        cells_of_whole_map(x_BLC),
        reduction=layer.sr_ratio,
        finish=lambda mixed: identity + layer.dropout_layer(layer.proj_drop(inner.out_proj(mixed))),
    )


# From the name of a class to a function of the layer and its inputs.
ADAPTERS: dict[str, Callable[..., AttentionWeights]] = {
    'ShiftWindowMSA': _read_swin,
    'SpatialReductionAttention': _read_pvt,
    'EfficientMultiheadAttention': _read_pvt,
}
