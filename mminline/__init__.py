"""InLine attention backbones for OpenMMLab: detection and segmentation in linear time."""

from importlib.util import find_spec

from .version import __version__

__all__ = ['__version__']

# Pictures and files of predictions (`visualization`, `predictions`) need numpy and OpenCV only, so
# that exported models run where neither torch nor OpenMMLab is installed.
if all(map(find_spec, ('torch', 'mmengine', 'mmcv'))):
    from . import checkpoints, compat, config_bases, engine, execution, models
    from .execution import spatial_parallel
    from .models import InLineDeiT, InLinePVT, InLineSwin

    __all__ += ['checkpoints', 'compat', 'config_bases', 'engine', 'execution', 'models']
    __all__ += ['InLineDeiT', 'InLinePVT', 'InLineSwin', 'spatial_parallel']
