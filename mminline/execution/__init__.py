"""Execution of blocks: one decision for each call, and the forms that it chooses from.

The forms compute the same with the same parameters. ``layers`` has the plain one; the others live
here: fused (less memory traffic), packed (the same for images of several sizes), streamed (bands
of rows that stay in the cache), exported (graphs without branches on sizes). Fused and streamed
also run on a slab of a grid that several processes share, see ``slabs``.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from ..layers import Block
from . import exported, fused, packed, slabs, streamed
from .convolution import as_part_of, note_images
from .decision import (
    Decision,
    autocasts,
    can_read,
    choose,
    find_observer,
    is_exporting,
    is_forced_plain,
    is_recording,
)
from .embedding import is_known as is_known_embedding
from .embedding import run as embed
from .groups import Group, find_covered, from_grids, pack, to_grids, unpack
from .order import to_order
from .slabs import spatial_parallel

__all__ = [
    'Decision',
    'Group',
    'as_part_of',
    'can_read',
    'choose',
    'embed',
    'find_covered',
    'find_observer',
    'from_grids',
    'is_forced_plain',
    'is_known_embedding',
    'is_recording',
    'note_images',
    'pack',
    'run',
    'run_packed',
    'spatial_parallel',
    'to_grids',
    'to_order',
    'unpack',
]


def run(
    block: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], streaming: bool | None = None
) -> Tensor:
    """Run a block or an attention layer in the form that fits, see ``choose``.

    The result is that of ``block(x_BLC, hw_shape)`` up to rounding; the tokens stay as they are.

    Args:
        block: ``Block`` or attention layer.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid; a ``slabs.SlabShape`` for a slab of it.
        streaming: Whether a block runs in bands in inference: None for on a CPU, True for on
            any device, False for never.
    """
    decision = choose(block, x_BLC, hw_shape, streaming)
    if decision.name == 'streamed':
        return streamed.run(block, x_BLC, hw_shape, decision.one_pass, decision.dtype)
    if decision.name == 'fused':
        return fused.run(block, x_BLC, hw_shape, decision.one_pass, decision.dtype)
    if decision.name == 'exported':
        return exported.run(block, x_BLC, hw_shape, is_exporting())
    if not isinstance(hw_shape, slabs.SlabShape):
        return block(x_BLC, hw_shape)
    if isinstance(block, Block):
        return block(x_BLC, hw_shape, slabs.attend)
    return slabs.attend(block, x_BLC, hw_shape)


def run_packed(
    block: nn.Module, x_1LC: Tensor, groups: Sequence[Group], streaming: bool | None = None
) -> Tensor:
    """Run a block on images of several sizes: all at once if a fast form fits.

    Args:
        block: ``Block``.
        x_1LC: Tokens of all groups, as ``pack`` gives them.
        groups: What they belong to.
        streaming: As for ``run``.
    """
    parts = unpack(x_1LC, groups)
    # One decision for all: the size of an image only decides between these two.
    decision = choose(block, parts[0], groups[0].hw_shape, streaming)
    if decision.name == 'fused' or (decision.name == 'streamed' and not autocasts(x_1LC)):
        return packed.run(block, x_1LC, groups, decision.one_pass, decision.dtype)
    return pack(
        [
            run(block, part_BLC, group.hw_shape, streaming)
            for part_BLC, group in zip(parts, groups, strict=True)
        ]
    )
