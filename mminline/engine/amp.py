"""Mixed precision in training, on a CPU too."""

import contextlib
from collections.abc import Iterator

import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from torch import nn

from ..registry import OPTIM_WRAPPERS


@MMENGINE_OPTIM_WRAPPERS.register_module()
@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """Forward and loss under autocast to bfloat16, on any device.

    mmengine's ``AmpOptimWrapper`` needs a GPU, for it scales the loss so that small gradients do
    not vanish in float16. bfloat16 has the range of float32 and needs no scaling. The parts named
    in ``keep_float32`` stay in float32. In a config::

        optim_wrapper = dict(type='mminline.BFloat16OptimWrapper', optimizer=...)
    """

    @contextlib.contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        from ..apis.precision import keep_float32  # importing mminline stays quick without it

        keep_float32(model)
        device = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(device, torch.bfloat16):
            yield
