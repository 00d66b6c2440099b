"""What lets mmengine 0.10 read its own checkpoints on torch >= 2.6.

There ``torch.load`` takes only tensors and plain containers (``weights_only=True``), and refuses
the training log that mmengine saves beside the weights: resuming, testing and inference fail.
Importing this module allows what that log is made of, and nothing that could run code.
"""

from collections.abc import Callable
from pickle import UnpicklingError

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

HISTORY_METHODS = ('min', 'max', 'current', 'mean')


def history_method(owner: type, name: str) -> Callable:
    """Stand in for ``getattr`` while a checkpoint is read.

    A saved HistoryBuffer names its statistics as ``getattr(HistoryBuffer, 'min')``. The real
    ``getattr`` would hand a crafted file everything that Python can reach.
    """
    if owner is not HistoryBuffer or name not in HISTORY_METHODS:
        raise UnpicklingError(f'A checkpoint may not ask for {name!r} of {owner!r}.')
    return getattr(owner, name)


def mmengine_globals() -> list[Callable | tuple[Callable, str]]:
    """All that a checkpoint of mmengine names, each with its reason."""
    reconstruct = np.empty(0).__reduce__()[0]
    scalar = np.float64().__reduce__()[0]
    return [
        HistoryBuffer,  # one for each logged value
        (history_method, 'builtins.getattr'),  # its statistics
        np.ndarray,  # the history itself
        np.dtype,  # of that array, and of metrics
        type(np.dtype(np.float64)),  # logged values
        type(np.dtype(np.float32)),  # metrics of mmseg
        type(np.dtype(np.int64)),  # their counts
        # numpy 2 moved these; files name them as the numpy did that wrote them.
        (reconstruct, 'numpy._core.multiarray._reconstruct'),
        (reconstruct, 'numpy.core.multiarray._reconstruct'),
        (scalar, 'numpy._core.multiarray.scalar'),  # the best score so far
        (scalar, 'numpy.core.multiarray.scalar'),
    ]


def allow_mmengine_checkpoints() -> None:
    """Make ``torch.load`` accept checkpoints of mmengine; older torch accepts them anyway."""
    if torch.__version__ >= (2, 6):
        torch.serialization.add_safe_globals(mmengine_globals())


allow_mmengine_checkpoints()
