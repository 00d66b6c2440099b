"""Faster inference of necks and heads, for a model with one of our backbones.

Once the backbone is fast, most of the time goes to the convolutions behind it. Their parameters
and their results stay the same, up to rounding.
"""

import functools

import torch
from mmcv.cnn.bricks import wrappers
from torch import Tensor, nn

from .. import execution
from ..execution.convolution import run_convolution, suits_winograd
from ..execution.roi_align import run_roi_align, suits_table
from ..layers import Block
from ..models.backbones.template import Backbone

# Classes whose forward is known; mmcv registers its own under the name 'Conv'.
_CONVOLUTIONS = (nn.Conv2d, wrappers.Conv2d)
_TRANSPOSED = (nn.ConvTranspose2d, wrappers.ConvTranspose2d)
# Their modules work on maps in any order in memory, but for compiled operations of mmcv.
_LIBRARIES = {'torch', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mminline'}


def accelerate(model: nn.Module, precision: str = 'float32') -> None:
    """Let necks and heads run faster in inference on a CPU; a GPU has its own ways.

    In float32, 3x3 convolutions run by Winograd's algorithm. RoIAlign runs on all cores. The
    backbone leaves its maps in channels-last order, which PyTorch has faster kernels for, and so
    do convolutions, unless a part of the model reads memory without a look at the order, or is
    from another library. Transposed convolutions, and in half precision all, do so anyway. A model
    without one of our blocks, and any model under ``MMINLINE_EXECUTION=plain``, stays as it is.
    ``set_precision`` calls this again for a model that has been accelerated.

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
    order = torch.contiguous_format
    if isinstance(model.backbone, Backbone) and all(map(_reads_strides, [model, *modules])):
        order = model.backbone.memory_format = torch.channels_last
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
    library, *folders = type(module).__module__.split('.')
    if (library, *folders[:1]) == ('mmcv', 'ops'):
        return suits_table(module)
    return library in _LIBRARIES
