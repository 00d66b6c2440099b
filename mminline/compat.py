"""Let torch read checkpoints of mmengine without running code.

``torch.load`` takes only tensors and plain containers (``weights_only=True``), and refuses the
training log that mmengine saves beside the weights: resuming, testing and inference fail.
Importing this module allows what that log is made of, and nothing that could run code.
"""

from argparse import Namespace
from collections.abc import Callable
from pickle import UnpicklingError

import numpy as np
from mmengine.logging import HistoryBuffer
from mmengine.optim import OneCycleParamScheduler
from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals

# What a saved object may ask its class for, and no other.
METHODS = {
    HistoryBuffer: ('min', 'max', 'current', 'mean'),
    OneCycleParamScheduler: ('_annealing_cos', '_annealing_linear'),
}


def saved_method(owner: type, name: str) -> Callable:
    """Stand in for ``getattr`` while a checkpoint is read.

    A saved HistoryBuffer names its statistics as ``getattr(HistoryBuffer, 'min')``. The real
    ``getattr`` would hand a crafted file everything that Python can reach.
    """
    if not isinstance(owner, type) or name not in METHODS.get(owner, ()):
        raise UnpicklingError(f'A checkpoint may not ask for {name!r} of {owner!r}')
    return getattr(owner, name)


def mmengine_globals() -> list[Callable | tuple[Callable, str]]:
    """List what checkpoints name beside tensors, each with its reason."""
    reconstruct = np.empty(0).__reduce__()[0]
    scalar = np.float64().__reduce__()[0]
    numbers = '?' + np.typecodes['AllInteger'] + np.typecodes['Float']
    return [
        HistoryBuffer,  # one for each logged value
        OneCycleParamScheduler,  # its schedule keeps a method
        (saved_method, 'builtins.getattr'),  # how both name their methods
        np.ndarray,  # the history itself
        np.dtype,  # of that array, and of metrics
        *{type(np.dtype(code)) for code in numbers},  # logged values, scores, palettes
        # numpy 2 moved these; files name them as the numpy did that wrote them.
        (reconstruct, 'numpy._core.multiarray._reconstruct'),
        (reconstruct, 'numpy.core.multiarray._reconstruct'),
        (scalar, 'numpy._core.multiarray.scalar'),  # the best score so far
        (scalar, 'numpy.core.multiarray.scalar'),
        Namespace,  # settings beside the weights of many other projects
    ]


def allow_mmengine_checkpoints() -> None:
    """Make ``torch.load`` accept checkpoints of mmengine, and never the real ``getattr``.

    Called before each load: onedl-mmengine's own loader allows ``getattr`` for a while, and
    takes what it shares with this list away when it ends.
    """
    allowed = get_safe_globals()
    safe = [
        entry
        for entry in allowed
        if getattr is not (entry[0] if isinstance(entry, tuple) else entry)
    ]
    if len(safe) < len(allowed):
        clear_safe_globals()
    add_safe_globals([*safe, *mmengine_globals()])


allow_mmengine_checkpoints()
