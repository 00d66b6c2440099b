"""Size of the pieces in which the fast forms run: one budget for all of them."""

import functools
import os

from torch import Tensor

VARIABLE = 'MMINLINE_BAND_BYTES'


@functools.cache
def band_bytes(device: str = 'cpu') -> int:
    """Size of the widest tensor of a band.

    A third of the last cache on a CPU, at most 8 MB: a virtual machine reports the cache of the
    whole processor, of which it has a share. Elsewhere enough to keep a GPU busy.
    ``MMINLINE_BAND_BYTES`` overrides both.
    """
    if value := os.environ.get(VARIABLE):
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f'{VARIABLE} has to be a number of bytes from 1 on, got {value!r}')
        return int(value)
    if device != 'cpu':
        return 256 << 20
    sizes = [
        os.sysconf(name)
        for name in ('SC_LEVEL3_CACHE_SIZE', 'SC_LEVEL2_CACHE_SIZE')
        if name in getattr(os, 'sysconf_names', {})
    ]
    return min(max([size for size in sizes if size > 0], default=24 << 20) // 3, 8 << 20)


def chunk_values(x: Tensor) -> int:
    """Number of values of the widest tensor of a chunk in training.

    The backward pass holds four such tensors at a time.
    """
    return max(band_bytes('cpu') // 4 // x.element_size(), 1)
