"""Faster inference of necks and heads, for a model with one of our backbones.

Once the backbone is fast, most of the time goes to the convolutions behind it. Their parameters
and their results stay the same, up to rounding.
"""

import functools
import re

import torch
from mmcv.cnn.bricks import wrappers
from torch import Tensor, nn

from .. import execution
from ..execution.convolution import run_convolution, suits_winograd
from ..execution.roi_align import run_roi_align, suits_table
from ..layers import Block

# Classes whose forward is known; mmcv registers its own under the name 'Conv'.
_CONVOLUTIONS = (nn.Conv2d, wrappers.Conv2d)
_TRANSPOSED = (nn.ConvTranspose2d, wrappers.ConvTranspose2d)
# Modules that work on maps in any order in memory. Not all do: compiled operations of mmcv read
# memory without a look at the strides, and some heads of mmdet and mmseg call ``view`` on a map.
_READ_STRIDES = re.compile(
    r'torch\.|mmengine\.|mmcv\.cnn\.|mminline\.'
    r'|mm(det|seg)\.models\.(detectors|segmentors|data_preprocessor|losses|layers|utils)'
    r'|mmdet\.models\.(necks\.fpn|dense_heads\.(rpn|anchor|retina|fcos|atss)_head)$'
    r'|mmdet\.models\.roi_heads\.(standard|cascade)_roi_head$'
    r'|mmdet\.models\.roi_heads\.roi_extractors\.'
    r'|mmdet\.models\.roi_heads\.(bbox_heads\.(convfc_)?bbox|mask_heads\.fcn_mask)_head$'
    r'|mmseg\.models\.necks\.(fpn|featurepyramid|multilevel_neck)$'
    r'|mmseg\.models\.decode_heads\.(fpn|uper|segformer|psp|fcn|aspp|sep_aspp)_head$'
)


def accelerate(model: nn.Module, precision: str = 'float32') -> None:
    """Let necks and heads run faster in inference on a CPU; a GPU has its own ways.

    In float32, 3x3 convolutions run by Winograd's algorithm. RoIAlign runs on all cores. The
    backbone leaves its maps in channels-last order, which PyTorch has faster kernels for, and so
    do convolutions, if all parts of the model are known to read it. Transposed convolutions, and
    in half precision all, do so anyway. A model without one of our blocks, and any model under
    ``MMINLINE_EXECUTION=plain``, stays as it is. Call this again if parts of the model have been
    replaced; ``set_precision`` does so for a model that has been accelerated.

    Args:
        model: Detector or segmentor, on the device that it will run on.
        precision: Precision that it runs in, as for ``init_model``.
    """
    on_cpu = next(model.parameters()).device.type == 'cpu'
    is_ours = any(isinstance(module, Block) for module in model.modules())
    if not (on_cpu and is_ours) or execution.is_forced_plain():
        return
    parts = [part for name, part in model.named_children() if name != 'backbone']
    modules = [module for part in parts for module in part.modules()]
    is_channels_last = False
    if hasattr(model.backbone, 'channels_last'):  # one of ours
        is_channels_last = all(map(_reads_strides, [model, *modules]))
        model.backbone.channels_last = is_channels_last
    order = torch.channels_last if is_channels_last else torch.contiguous_format
    for module in modules:
        # Partial functions, not closures: a copy of the model, or a pickled one, runs its own.
        if suits_table(module):
            module.forward = functools.partial(run_roi_align, module)
        elif type(module) in _TRANSPOSED:
            module.to(memory_format=torch.channels_last)
        elif type(module) in _CONVOLUTIONS:
            # With weights in channels-last order the result is in that order, whatever the map is.
            module.to(memory_format=order if precision == 'float32' else torch.channels_last)
            # For float32 only, so it does no harm to another precision.
            if suits_winograd(module):
                module.forward = functools.partial(run_convolution, module)
    scores = getattr(getattr(model, 'decode_head', None), 'conv_seg', None)
    if type(scores) in _CONVOLUTIONS:
        # In the other order they would be resized by a kernel that rounds differently.
        scores.forward = functools.partial(_run_contiguous, scores)
    model.is_accelerated = True


def is_accelerated(model: nn.Module) -> bool:
    """Whether necks and heads of a model run in the faster form."""
    return getattr(model, 'is_accelerated', False)


def _run_contiguous(conv: nn.Conv2d, x_BCHW: Tensor) -> Tensor:
    return type(conv).forward(conv, x_BCHW).contiguous()


def _reads_strides(module: nn.Module) -> bool:
    """Whether a module is known to work on maps in any order in memory."""
    return suits_table(module) or _READ_STRIDES.match(type(module).__module__) is not None
