"""Kinds of attention that a comparison knows by name, and how they get into a config."""

import ast
import inspect
from typing import Any

from mmengine.config import Config, ConfigDict

from ..models.backbones.archs import PVT_ARCHS, resolve_arch
from ..registry import MODELS

PLAIN = dict(feature_map='relu', injective=False)
# Options of the backbone.
KINDS: dict[str, dict[str, Any]] = {
    'inline': {},
    'inline-no-local': dict(local_residual=False),
    'linear': PLAIN,
    'linear-no-local': dict(PLAIN, local_residual=False),
    'softmax': dict(attention=dict(type='SoftmaxAttention', window_size=None)),
    'softmax-reduced': dict(sr_ratios=(8, 4, 2, 1)),
    'hydra': dict(attention=dict(type='HydraAttention')),
    'efficient': dict(attention=dict(type='EfficientAttention')),
    'angular': dict(attention=dict(type='AngularAttention')),
    'enhanced': dict(attention=dict(type='EnhancedLinearAttention')),
    'focused': dict(attention=dict(type='FocusedLinearAttention')),
    'mala': dict(attention=dict(type='MagnitudeAwareAttention')),
}
BACKBONES = ('InLinePVT', 'InLineSwin', 'InLineDeiT')
# What a config may say of its attention; a kind of the comparison takes its place.
ATTENTION_OPTIONS = ('attention', 'feature_map', 'injective', 'local_residual', 'inline_window')


def parse_kind(text: str) -> dict[str, Any]:
    """Return the options of the backbone for a kind.

    Args:
        text: A key of ``KINDS``, or a registered layer with options, such as
            'SoftmaxAttention:window_size=7'.
    """
    if text in KINDS:
        return dict(KINDS[text])
    name, _, options = text.partition(':')
    layer = MODELS.get(name) if name[:1].isupper() else None
    if layer is None:
        raise ValueError(
            f'a kind has to be one of {list(KINDS)} or a registered layer with options, such as '
            f'SoftmaxAttention:window_size=7, got {text!r}'
        )
    pairs = (option.partition('=') for option in options.split(',') if option)
    attention = {key: _read_value(value) for key, _, value in pairs}
    known = list(inspect.signature(layer).parameters)
    if unknown := [key for key in attention if key not in known]:
        raise ValueError(f'options of {name} have to be among {known}, got {unknown} in {text!r}')
    return dict(attention=dict(type=name, **attention))


def _read_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def use_attention(config: Config, kind: str) -> None:
    """Give the backbone of a config a kind of attention, and nothing else."""
    backbone = config.model.get('backbone') or {}
    if str(backbone.get('type')).split('.')[-1] not in BACKBONES:
        raise ValueError(
            f'the backbone has to be one of {list(BACKBONES)}, for its attention to be replaced, '
            f'got {backbone.get("type")!r} in {config.filename}'
        )
    for name in ATTENTION_OPTIONS:
        backbone.pop(name, None)
    options = parse_kind(kind)
    if 'sr_ratios' in options:
        config.model.backbone = _pvt_of_mmdet(backbone, **options)
    else:
        backbone.update(options)


def _pvt_of_mmdet(backbone: ConfigDict, sr_ratios: tuple[int, ...]) -> dict:
    """Turn InLine-PVT into mmdet's PVT of the same sizes, which joins keys by convolutions."""
    if not str(backbone.type).endswith('InLinePVT'):
        raise ValueError(f"'softmax-reduced' is a kind of InLinePVT, got {backbone.type!r}")
    arch = resolve_arch(backbone.get('arch', 'tiny'), PVT_ARCHS)
    head_dims = {
        dims // heads for dims, heads in zip(arch['embed_dims'], arch['num_heads'], strict=True)
    }
    if len(head_dims) > 1:
        raise ValueError(
            f"'softmax-reduced' has to have as many channels a head in each stage, got {arch}"
        )
    if backbone.get('frozen_stages', -1) >= 0:
        raise ValueError("'softmax-reduced' cannot freeze stages: set frozen_stages to -1")
    same = ('in_channels', 'out_indices', 'drop_rate')
    return dict(
        {name: backbone[name] for name in same if name in backbone},
        type='mmdet.PyramidVisionTransformer',
        pretrain_img_size=backbone.get('pretrain_size', 224),
        embed_dims=head_dims.pop(),  # times num_heads in each stage
        num_heads=arch['num_heads'],
        num_layers=arch['depths'],
        mlp_ratios=arch['mlp_ratios'],
        drop_path_rate=backbone.get('drop_path_rate', 0.0),
        sr_ratios=sr_ratios,
    )
