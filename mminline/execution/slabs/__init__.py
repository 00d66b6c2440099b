"""One image over several processes, each of which holds a slab of its rows.

Only a few statistics and the rows next to a slab tie its tokens to those of the other slabs, so
that is all that processes exchange. The result is that of one process, up to rounding.
"""

from .attention import attend, local_residual, mix_qkv, neighbour_rows
from .exchange import (
    LostProcessError,
    average_over_slabs,
    move_map_rows,
    move_rows,
    named_errors,
    sum_over_slabs,
)
from .parallel import (
    add_rows,
    count_processes,
    cut_evenly,
    find_slab,
    is_parallel,
    spatial_parallel,
)
from .position import resize_position
from .shape import SlabShape, even_edges, whole_shape, whole_tokens

__all__ = [
    'LostProcessError',
    'SlabShape',
    'add_rows',
    'attend',
    'average_over_slabs',
    'count_processes',
    'cut_evenly',
    'even_edges',
    'find_slab',
    'is_parallel',
    'local_residual',
    'mix_qkv',
    'move_map_rows',
    'move_rows',
    'named_errors',
    'neighbour_rows',
    'resize_position',
    'spatial_parallel',
    'sum_over_slabs',
    'whole_shape',
    'whole_tokens',
]
