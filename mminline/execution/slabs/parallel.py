"""The mode in which several processes share each image."""

import contextlib
import itertools
from collections.abc import Iterator
from contextvars import ContextVar

import torch
import torch.distributed as dist
from torch import Tensor

from .exchange import move_map_rows, named_errors
from .shape import SlabShape, even_edges

_group: ContextVar[dist.ProcessGroup | None] = ContextVar('spatial_parallel', default=None)


@contextlib.contextmanager
def spatial_parallel(group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Share each image between the processes of a group: backbones take and return slabs of rows.

    Each process passes its own rows of the images, and gets its own rows of the maps. They are
    those that one process computes from whole images, up to rounding. The height of each slab but
    the last has to be a multiple of the largest stride of the backbone.

    Args:
        group: Processes in the order of their slabs, from top to bottom; all if not given.
    """
    if not dist.is_initialized():
        raise ValueError(
            'spatial_parallel needs processes that know each other: start them with torchrun and '
            'call torch.distributed.init_process_group'
        )
    group = group or dist.group.WORLD
    if dist.get_rank(group) < 0:
        raise ValueError('the group of spatial_parallel has to contain this process')
    token = _group.set(group)
    try:
        # A compiled program does not see the mode, and would take the slab for a whole image.
        with torch.compiler.set_stance('force_eager'):
            yield
    finally:
        _group.reset(token)


def is_parallel() -> bool:
    """Whether processes share images; a compiler cannot follow the question."""
    return not torch.compiler.is_compiling() and _group.get() is not None


def count_processes() -> int:
    """Number of processes that share each image: 1 outside of ``spatial_parallel``."""
    return dist.get_world_size(_group.get()) if is_parallel() else 1


def cut_evenly(height: int, width: int) -> SlabShape | None:
    """Cut a grid into slabs of nearly equal height; None if images are not shared."""
    if not is_parallel():
        return None
    group = _group.get()
    return SlabShape(even_edges(height, dist.get_world_size(group)), width, group)


def find_slab(image_BCHW: Tensor, multiple: int) -> SlabShape | None:
    """Ask the other processes for the heights of their slabs; None if images are not shared.

    Args:
        image_BCHW: Own rows of the images.
        multiple: What the height of each slab but the last has to be a multiple of.
    """
    if not is_parallel():
        return None
    group = _group.get()
    batch, *_, height, width = image_BCHW.shape
    own = torch.tensor([height, width, batch], device=image_BCHW.device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    with named_errors(group):
        dist.all_gather(sizes, own, group=group)
    heights, widths, batches = zip(*(size.tolist() for size in sizes), strict=True)
    if len(set(widths)) > 1 or len(set(batches)) > 1:
        raise ValueError(
            'the slabs of an image have to have the same width and batch, '
            f'got widths {widths} and batches {batches}'
        )
    if min(heights) < 1 or any(height % multiple for height in heights[:-1]):
        raise ValueError(
            f'the height of each slab but the last has to be a multiple of {multiple}, '
            f'and that of the last at least 1, got heights {heights}'
        )
    return SlabShape([0, *itertools.accumulate(heights)], width, group)


def add_rows(map_BCHW: Tensor, count: int) -> tuple[Tensor, int]:
    """Add rows of the other slabs to a map, for layers behind the backbone that look at them.

    To be called by all processes inside ``spatial_parallel``.

    Args:
        map_BCHW: Own rows of a map.
        count: How many rows to add on both sides; there are fewer at the ends of the whole map.

    Returns:
        The map, and how many rows were added above.
    """
    slab = find_slab(map_BCHW, multiple=1)
    if slab is None:
        return map_BCHW, 0
    rows = slab.widened(count)
    return move_map_rows(map_BCHW, slab, rows), slab.top - rows[slab.rank][0]
