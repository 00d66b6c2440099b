"""Attention layers of every kind that can be looked into, each with an input."""

import functools

import torch
from torch import Tensor, nn

from helpers.tiny import image, randomize
from mminline.analysis.hooks import attention_hooks
from mminline.layers import (
    AngularAttention,
    AttentionWeights,
    EfficientAttention,
    EnhancedLinearAttention,
    FocusedLinearAttention,
    HydraAttention,
    InLineAttention,
    LinearAttention,
    MagnitudeAwareAttention,
    SoftmaxAttention,
    reference,
)

CHANNELS, HEADS = 12, 2


def inline(**options) -> nn.Module:
    return InLineAttention(CHANNELS, HEADS, **options)


def mmdet_pvt(sr_ratio: int) -> nn.Module:
    from mmdet.models.backbones.pvt import SpatialReductionAttention

    return SpatialReductionAttention(CHANNELS, HEADS, sr_ratio=sr_ratio)


def mmseg_mit(sr_ratio: int) -> nn.Module:
    from mmseg.models.backbones.mit import EfficientMultiheadAttention

    return EfficientMultiheadAttention(CHANNELS, HEADS, sr_ratio=sr_ratio)


def mmdet_swin(shift: int) -> nn.Module:
    from mmdet.models.backbones.swin import ShiftWindowMSA

    return ShiftWindowMSA(CHANNELS, HEADS, window_size=7, shift_size=shift)


def mmseg_swin(shift: int) -> nn.Module:
    from mmseg.models.backbones.swin import ShiftWindowMSA

    return ShiftWindowMSA(CHANNELS, HEADS, window_size=7, shift_size=shift)


# The kind of weights, and how the layer is made.
LAYERS = {
    'inline': ('inline', lambda: inline()),
    'inline relu': ('inline', lambda: inline(feature_map='relu')),
    'inline leaky_relu': ('inline', lambda: inline(feature_map='leaky_relu')),
    'inline exp': ('inline', lambda: inline(feature_map='exp')),
    'inline without residual': ('inline', lambda: inline(local_residual=False)),
    'inline windows': ('inline', lambda: inline(window_size=5)),
    'inline shifted windows': ('inline', lambda: inline(window_size=5, shifted=True)),
    'linear relu': ('linear', lambda: inline(feature_map='relu', injective=False)),
    'linear exp': ('linear', lambda: inline(feature_map='exp', injective=False)),
    'linear windows': (
        'linear',
        lambda: inline(feature_map='exp', injective=False, window_size=4, shifted=True),
    ),
    'softmax': ('softmax', lambda: SoftmaxAttention(CHANNELS, HEADS, window_size=None)),
    'softmax windows': ('softmax', lambda: SoftmaxAttention(CHANNELS, HEADS)),
    'softmax shifted windows': (
        'softmax',
        lambda: SoftmaxAttention(CHANNELS, HEADS, shifted=True),
    ),
    'linear': ('linear', lambda: LinearAttention(CHANNELS, HEADS)),
    'hydra': ('hydra', lambda: HydraAttention(CHANNELS, HEADS)),
    'efficient': ('efficient', lambda: EfficientAttention(CHANNELS, HEADS)),
    'angular': ('angular', lambda: AngularAttention(CHANNELS, HEADS)),
    'enhanced': ('linear', lambda: EnhancedLinearAttention(CHANNELS, HEADS)),
    'focused': ('focused', lambda: FocusedLinearAttention(CHANNELS, HEADS)),
    'magnitude-aware': ('magnitude-aware', lambda: MagnitudeAwareAttention(CHANNELS, HEADS)),
    'mmdet PVT': ('softmax', lambda: mmdet_pvt(1)),
    'mmdet PVT, keys reduced': ('softmax', lambda: mmdet_pvt(2)),
    'mmseg MiT': ('softmax', lambda: mmseg_mit(2)),
    'mmdet Swin': ('softmax', lambda: mmdet_swin(0)),
    'mmdet Swin, shifted': ('softmax', lambda: mmdet_swin(3)),
    'mmseg Swin, shifted': ('softmax', lambda: mmseg_swin(3)),
}
GRID = (9, 11)  # no multiple of any window


def build(name: str) -> nn.Module:
    """A layer with random parameters, in float64."""
    return randomize(LAYERS[name][1]()).double().eval()


def tokens(batch: int = 2, grid: tuple[int, int] = GRID) -> Tensor:
    return image(batch, grid[0] * grid[1], CHANNELS, dtype=torch.float64)


@torch.no_grad()
def look(
    layer: nn.Module, x_BLC: Tensor, grid: tuple[int, int] = GRID
) -> tuple[Tensor, AttentionWeights]:
    """Output of a layer, and its attention as seen from outside."""
    seen = []
    with attention_hooks({'layer': layer}, lambda name, attention: seen.append(attention)):
        output = layer(x_BLC, grid)
    (attention,) = seen
    return output, attention


def attention_of(kind: str, q, k, v=None, grid=None, scale=1.0, **options) -> AttentionWeights:
    """Attention of one group and one head on tokens in a row, or in a grid."""
    q, k = (torch.as_tensor(part, dtype=torch.float64)[None, None] for part in (q, k))
    v = torch.zeros_like(k) if v is None else torch.as_tensor(v, dtype=torch.float64)[None, None]
    grid = grid or (1, q.shape[2])
    rules = {
        'inline': functools.partial(reference.inline_weights, scale=scale),
        'linear': reference.linear_weights,
        'softmax': functools.partial(reference.softmax_weights, scale=scale),
    }
    cells = torch.arange(q.shape[2])[None]
    return AttentionWeights(kind, rules[kind], q, k, v, grid, grid, cells, **options)
