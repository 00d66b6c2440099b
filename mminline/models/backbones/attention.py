"""Attention layers of a backbone from its options."""

import inspect
from collections.abc import Callable, Mapping

from torch import nn

from ...layers.attention import KINDS, InLineAttention
from ...registry import MODELS

# The switches of the paper's ablations, which belong to InLine attention alone.
SWITCHES = dict(feature_map='identity', injective=True, local_residual=True, window_size=None)


def attention_builder(attention: str | Mapping, **switches: object) -> Callable[..., nn.Module]:
    """Return a function that builds the attention layers of a backbone.

    It is called with ``embed_dims``, ``num_heads``, ``drop_rate``, ``shifted`` and
    ``num_extra_tokens``; the last two are handed on to layers that know them.

    Args:
        attention: 'inline', or a config of a registered layer, ``dict(type=NAME, ...)``.
        switches: Options of InLine attention, see ``SWITCHES``.
    """
    if attention == 'inline':
        kind, options = InLineAttention, switches
    else:
        kind, options = _find_kind(attention)
        changed = [name for name, value in switches.items() if value != SWITCHES[name]]
        if changed:
            names = [{'window_size': 'inline_window'}.get(name, name) for name in changed]
            raise ValueError(
                f"{', '.join(names)} belong to attention='inline'; give options of another kind "
                f'in its dict, got attention={attention!r}'
            )
    known = inspect.signature(kind).parameters

    def build(
        embed_dims: int,
        num_heads: int,
        drop_rate: float,
        shifted: bool = False,
        num_extra_tokens: int = 0,
    ) -> nn.Module:
        places = dict(shifted=shifted, num_extra_tokens=num_extra_tokens)
        places = {name: value for name, value in places.items() if name in known}
        return kind(embed_dims, num_heads, drop_rate=drop_rate, **{**places, **options})

    return build


def _find_kind(attention: str | Mapping) -> tuple[type, dict]:
    names = [kind.__name__ for kind in KINDS]
    if not isinstance(attention, Mapping) or 'type' not in attention:
        raise ValueError(
            f"attention has to be 'inline' or a dict with a type, such as one of {names}, "
            f'got {attention=}'
        )
    options = {key: value for key, value in attention.items() if key not in ('type', '_scope_')}
    name = attention['type']
    kind = name if isinstance(name, type) else MODELS.get(name)
    if kind is None:
        raise ValueError(
            f'attention has to be of a registered type, such as one of {names}, got type={name!r}'
        )
    return kind, options
