"""InLine attention backbones for OpenMMLab: detection and segmentation in linear time."""

from .stack import explain_missing, find_missing, warn_of_clash
from .version import __version__

__all__ = [
    'InLineDeiT',
    'InLinePVT',
    'InLineSwin',
    '__version__',
    'checkpoints',
    'compat',
    'config_bases',
    'engine',
    'execution',
    'models',
    'spatial_parallel',
]

# Pictures and files of predictions (`visualization`, `predictions`) need numpy and OpenCV only, so
# that exported models run where neither torch nor OpenMMLab is installed.
_missing = find_missing()
# First: the mixture may be what keeps the rest from being imported.
warn_of_clash()
if not _missing:
    from . import checkpoints, compat, config_bases, engine, execution, models
    from .execution import spatial_parallel
    from .models import InLineDeiT, InLinePVT, InLineSwin


def __getattr__(name: str) -> object:
    if _missing and name in __all__:
        raise ModuleNotFoundError(explain_missing(name, _missing), name=_missing[0])
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
