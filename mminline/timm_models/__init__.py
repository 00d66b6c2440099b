"""InLine models for timm; importing this module registers them.

``timm.create_model('inline_pvt_tiny')`` (``_small``, ``_medium``, ``_large``),
``'inline_swin_tiny'`` and ``'inline_deit_tiny'`` (``_small``, ``_base``) then make classifiers and
feature extractors of the same stages that the OpenMMLab backbones have.
"""

import torch

try:
    import timm  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'mminline.timm_models needs timm and torchvision, {error.name} is missing: '
        'pip install "mminline[timm]"',
        name=error.name,
    ) from error
except RuntimeError as error:
    if 'torchvision' not in str(error):
        raise
    # What the torchvision of PyPI, which is built for CUDA, does beside a CPU build of torch.
    raise ImportError(
        f'mminline.timm_models needs timm, and timm a torchvision that is built for the installed '
        f'torch {torch.__version__}; this one is not ({error}): install both from one index, for '
        'CPU builds that of https://pytorch.org/get-started/locally/'
    ) from error

from .classifier import InLineClassifier
from .entrypoints import (
    inline_deit_base,
    inline_deit_small,
    inline_deit_tiny,
    inline_pvt_large,
    inline_pvt_medium,
    inline_pvt_small,
    inline_pvt_tiny,
    inline_swin_base,
    inline_swin_small,
    inline_swin_tiny,
)
from .token_classifier import InLineTokenClassifier

__all__ = [
    'InLineClassifier',
    'InLineTokenClassifier',
    'inline_deit_base',
    'inline_deit_small',
    'inline_deit_tiny',
    'inline_pvt_large',
    'inline_pvt_medium',
    'inline_pvt_small',
    'inline_pvt_tiny',
    'inline_swin_base',
    'inline_swin_small',
    'inline_swin_tiny',
]
