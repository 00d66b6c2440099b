"""Names of the published checkpoints, as a table to ours."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

# What a field in the table stands for.
FIELDS = {
    'stage': r'\d+',
    'block': r'\d+',
    'layer': r'norm1|norm2|attn\.q|attn\.kv|attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2',
    'embed': r'proj|norm',
    'merge': r'norm|reduction',
    'conv': r'0|2',
    'tensor': r'weight|bias',
}

# Published name, our name (None: not needed), what to add to the number of the stage.
TABLE = (
    # PVT counts stages from 1. Its q and kv are joined to qkv after the renaming.
    ('pos_embed{stage}', 'stages.{stage}.pos_embed', -1),
    ('patch_embed{stage}.{embed}.{tensor}', 'stages.{stage}.embed.{embed}.{tensor}', -1),
    ('block{stage}.{block}.{layer}.{tensor}', 'stages.{stage}.blocks.{block}.{layer}.{tensor}', -1),
    (
        'block{stage}.{block}.attn.residual.{conv}.{tensor}',
        'stages.{stage}.blocks.{block}.attn.local_kernel.{conv}.{tensor}',
        -1,
    ),
    # Swin counts stages from 0 and keeps the merging with the stage before it.
    ('patch_embed.{embed}.{tensor}', 'stages.0.embed.{embed}.{tensor}', 0),
    ('layers.{stage}.downsample.{merge}.{tensor}', 'stages.{stage}.embed.{merge}.{tensor}', 1),
    (
        'layers.{stage}.blocks.{block}.{layer}.{tensor}',
        'stages.{stage}.blocks.{block}.{layer}.{tensor}',
        0,
    ),
    (
        'layers.{stage}.blocks.{block}.attn.residual.{conv}.{tensor}',
        'stages.{stage}.blocks.{block}.attn.local_kernel.{conv}.{tensor}',
        0,
    ),
    (
        'layers.{stage}.blocks.{block}.attn.relative_position_bias_table',
        'stages.{stage}.blocks.{block}.attn.relative_position_bias_table',
        0,
    ),
    # DeiT has one stage. Its position embedding begins with that of the class token.
    ('cls_token', 'stages.0.class_token', 0),
    ('pos_embed', 'stages.0.pos_embed', 0),
    ('blocks.{block}.{layer}.{tensor}', 'stages.0.blocks.{block}.{layer}.{tensor}', 0),
    (
        'blocks.{block}.attn.residual.{conv}.{tensor}',
        'stages.0.blocks.{block}.attn.local_kernel.{conv}.{tensor}',
        0,
    ),
    # Buffers that follow from the sizes.
    ('layers.{stage}.blocks.{block}.attn.relative_position_index', None, 0),
    ('layers.{stage}.blocks.{block}.attn_mask', None, 0),
    # Classifier: the final norm of Swin and DeiT and the class head, kept on request only.
    ('norm.{tensor}', 'norm.{tensor}', 0),
    ('head.{tensor}', 'head.{tensor}', 0),
)
CLASSIFIER = ('norm.', 'head.')

# How the first block is called tells whose names a checkpoint has.
KINDS = {
    'block1.0.': 'official InLine-PVT',
    'layers.0.blocks.0.': 'official InLine-Swin',
    'stages.0.blocks.0.': 'mminline',
    'blocks.0.': 'official InLine-DeiT',
}

# Where training scripts keep the weights in a checkpoint, the usual place first.
NESTS = ('state_dict', 'model', 'model_state_dict', 'state_dict_ema', 'model_ema')


class Source(NamedTuple):
    """Backbone weights as a checkpoint has them, without the prefix."""

    kind: str
    prefix: str
    weights: dict[str, Tensor]

    @property
    def is_official(self) -> bool:
        return self.kind != 'mminline'

    def converted(self) -> dict[str, Tensor]:
        """The weights in our names, without a classifier."""
        if self.is_official:
            return convert_official(self.weights)
        return {key: value for key, value in self.weights.items() if not key.startswith(CLASSIFIER)}


def _compile(official: str) -> re.Pattern:
    return re.compile(
        re.sub(
            r'\\{(\w+)\\}', lambda field: f'(?P<{field[1]}>{FIELDS[field[1]]})', re.escape(official)
        )
    )


ROWS = tuple((_compile(official), ours, shift) for official, ours, shift in TABLE)


def listed(items: Collection[str], limit: int = 10) -> str:
    """Join names for a message, no more than a reader takes in."""
    shown = ', '.join(list(items)[:limit])
    return f'{shown} and {len(items) - limit} more' if len(items) > limit else shown


def translate(keys: Iterable[str]) -> dict[str, str | None]:
    """Our name of each official key, None where it is not needed."""
    names, unknown = {}, []
    for key in keys:
        for pattern, ours, shift in ROWS:
            if match := pattern.fullmatch(key):
                fields = match.groupdict()
                if 'stage' in fields:
                    fields['stage'] = int(fields['stage']) + shift
                names[key] = ours.format(**fields) if ours else None
                break
        else:
            unknown.append(key)
    if unknown:
        raise ValueError(
            f'keys have to be those of an official InLine checkpoint, got {listed(unknown)}'
        )
    return names


def convert_official(
    state_dict: Mapping[str, Tensor], keep_classifier: bool = False
) -> dict[str, Tensor]:
    """Rename the weights of a published InLine-PVT, InLine-Swin or InLine-DeiT to ours.

    PVT's ``q`` and ``kv`` become one ``qkv``, position embeddings get their grid back, that of
    DeiT's class token becomes a weight of its own, buffers that follow from the sizes are dropped.

    Args:
        state_dict: Official weights, without the dict around them (see ``unwrap``).
        keep_classifier: Whether to keep ``head.*`` and the final ``norm.*`` of Swin and DeiT,
            which a backbone has no use for.
    """
    weights = {}
    for key, name in translate(state_dict).items():
        if name is None or (name.startswith(CLASSIFIER) and not keep_classifier):
            continue
        value = state_dict[key]
        if key == 'pos_embed':
            weights['stages.0.class_position'], value = value[:, :1], value[:, 1:]
        weights[name] = _unflatten_grid(key, value) if name.endswith('.pos_embed') else value
    return _join_qkv(weights)


def _unflatten_grid(key: str, position: Tensor) -> Tensor:
    side = math.isqrt(position.shape[1])
    if side**2 != position.shape[1]:
        raise ValueError(
            f'an official position embedding has to be of a square grid, '
            f'got {key} of shape {tuple(position.shape)}'
        )
    return position.unflatten(1, (side, side))


def _join_qkv(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put the rows of PVT's ``q`` before those of its ``kv``; Swin's ``qkv`` stays as it is."""
    joined, lonely = {}, []
    for key, value in weights.items():
        if '.attn.q.' in key:
            other = key.replace('.attn.q.', '.attn.kv.')
            if other in weights:
                joined[key.replace('.attn.q.', '.attn.qkv.')] = torch.cat([value, weights[other]])
        elif '.attn.kv.' in key:
            other = key.replace('.attn.kv.', '.attn.q.')
        else:
            other = key
            joined[key] = value
        if other not in weights:
            lonely.append(other)
    if lonely:
        raise ValueError(f'q and kv have to come together, {listed(lonely)} is missing')
    return joined


def unwrap(checkpoint: Mapping) -> dict[str, Tensor]:
    """Take the weights out of the dicts that training scripts wrap around them."""
    weights = checkpoint
    while isinstance(weights, Mapping) and (nest := _nest(weights)):
        weights = weights[nest]
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(f'a checkpoint has to be a dict of weights, got {type(weights).__name__}')
    strange = [str(key) for key, value in weights.items() if not isinstance(value, Tensor)]
    if strange:
        raise ValueError(
            f'a checkpoint has to hold its weights as tensors, by themselves or under one of '
            f'{list(NESTS)}, got other objects in {listed(strange)}'
        )
    return {str(key).removeprefix('module.'): value for key, value in weights.items()}


def _nest(weights: Mapping) -> str | None:
    return next((nest for nest in NESTS if isinstance(weights.get(nest), Mapping)), None)


def backbone_kinds(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Recognise InLine backbones among weights: whose names each has, by its prefix."""
    kinds = {}
    for key in weights:
        for first_block, kind in KINDS.items():
            prefix, found, _ = key.partition(first_block)
            # Behind a number it is the first block of a stage.
            if found and not re.search(r'[^.]$|\d\.$', prefix):
                kinds[prefix] = kind
    if not kinds:
        raise ValueError(
            f'a checkpoint has to hold an InLine backbone, got the keys {listed(weights)}'
        )
    return kinds


def find_backbone(weights: Mapping[str, Tensor], prefix: str | None = None) -> Source:
    """Take a backbone's part of weights.

    Args:
        weights: Tensors by name.
        prefix: What the backbone's names begin with, such as 'backbone.' in a detector.
    """
    kinds = backbone_kinds(weights)
    wanted = f'{prefix.rstrip(".")}.' if prefix else ''
    if wanted not in kinds:
        choices = ' or '.join(repr(found or None) for found in kinds)
        raise ValueError(
            f'prefix has to be {choices}, where the checkpoint has its backbone, got {prefix=}'
        )
    part = {key[len(wanted) :]: value for key, value in weights.items() if key.startswith(wanted)}
    return Source(kinds[wanted], wanted, part)
