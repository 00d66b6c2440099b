"""Precision of a whole model as one word, with float32 where half precision would do harm."""

import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from ..layers.statistics import upcast
from .acceleration import accelerate, is_accelerated

PRECISIONS = dict(float32=torch.float32, bfloat16=torch.bfloat16, float16=torch.float16)
# Instructions for products in bfloat16: AVX-512, AMX, Arm.
BFLOAT16_FLAGS = {'avx512_bf16', 'amx_bf16', 'bf16'}
ISA_VARIABLE, ISA_WITHOUT_AMX = 'ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16'


def set_precision(model: nn.Module, precision: str) -> None:
    """Let every forward pass of a model run in a precision, ``test_step`` too.

    Weights stay in float32. The convolutions and products of the model take half precision; sums
    over tokens, scores, boxes and the compiled operations of mmcv keep float32. Necks and heads
    in their faster form get that of the precision.

    Args:
        model: Detector or segmentor, on the device that it will run on.
        precision: 'float32', 'bfloat16' or 'float16'; it may be set again.
    """
    check_precision(precision, next(model.parameters()).device.type)
    if is_half(model):
        del model.forward  # of another precision
    if precision != 'float32':
        keep_float32(model)
        model.forward = functools.partial(_run_in, model.forward, PRECISIONS[precision])
    if is_accelerated(model):
        accelerate(model, precision)


def is_half(model: nn.Module) -> bool:
    """Whether a model runs in half precision by ``set_precision``."""
    return getattr(vars(model).get('forward'), 'func', None) is _run_in


@functools.cache  # one warning is enough
def check_precision(precision: str, device: str) -> None:
    """Raise a ValueError if a kind of device cannot run a precision; warn if it will be slow."""
    if precision not in PRECISIONS:
        raise ValueError(
            f'precision has to be one of {", ".join(PRECISIONS)}, got precision={precision!r}'
        )
    if device != 'cpu' or precision == 'float32':
        return
    if precision == 'float16':
        raise ValueError('precision=float16 needs a GPU: on a CPU take bfloat16')
    flags = read_cpu_flags()
    if {'amx_bf16', 'hypervisor'} <= flags and ISA_VARIABLE not in os.environ and crashes():
        raise ValueError(
            'precision=bfloat16 has to do without AMX on this virtual machine, which ends Python '
            f'with an illegal instruction: set {ISA_VARIABLE}={ISA_WITHOUT_AMX} and start again'
        )
    if flags and not flags & BFLOAT16_FLAGS:
        warnings.warn(
            'This CPU has no instructions for bfloat16: it emulates them, and is slower than in '
            'float32.',
            stacklevel=2,
        )


def keep_float32(model: nn.Module) -> None:
    """Keep the parts of a model in float32 that need its digits, whatever autocast says.

    - The outputs of heads: scores go through a softmax, and boxes are decoded from them. A
      bfloat16 beyond 1024 has steps of 8 px.
    - Operations of mmcv, which have no kernel for bfloat16, with the RoI extractors around them,
      which would round the boxes to the type of the maps.

    Heads are known by ``predict_by_feat``, RoI extractors by ``roi_layers``.
    """
    for module in model.modules():
        if _keeps_float32(module):
            continue
        if hasattr(module, 'predict_by_feat'):
            module.forward = functools.partial(_widen_outputs, module.forward)
        elif hasattr(module, 'roi_layers'):
            module.forward = functools.partial(_run_in_float32, module.forward, _widen)
        elif type(module).__module__.startswith('mmcv.ops.'):
            module.forward = functools.partial(_run_in_float32, module.forward, _widen_contiguous)


def _keeps_float32(module: nn.Module) -> bool:
    forward = vars(module).get('forward')
    return getattr(forward, 'func', None) in (_widen_outputs, _run_in_float32)


# Partial functions of methods, not closures: a copy of the model then runs its own parts.
def _run_in(forward: Callable, dtype: torch.dtype, *args, **kwargs) -> Any:
    device = next(forward.__self__.parameters()).device
    with torch.autocast(device.type, dtype):
        return forward(*args, **kwargs)


def _widen_outputs(forward: Callable, *args, **kwargs) -> Any:
    return tree_map_only(Tensor, _widen, forward(*args, **kwargs))


def _widen(x: Tensor) -> Tensor:
    return upcast(x) if x.is_floating_point() else x


def _widen_contiguous(x: Tensor) -> Tensor:
    """Prepare a tensor for operations that read memory without a look at the strides."""
    return _widen(x).contiguous()


def _run_in_float32(forward: Callable, prepare: Callable, *args, **kwargs) -> Any:
    args, kwargs = tree_map_only(Tensor, prepare, (args, kwargs))
    device = next(leaf.device for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
    with torch.autocast(device.type, enabled=False):
        return forward(*args, **kwargs)


def read_cpu_flags() -> set[str]:
    """Names of the instructions that the CPU has; empty where Linux does not tell."""
    file = Path('/proc/cpuinfo')
    lines = file.read_text().splitlines() if file.is_file() else []
    flags = (line.partition(':') for line in lines if line.startswith(('flags', 'Features')))
    return set(next(flags, ('', '', ''))[2].split())


@functools.cache
def crashes() -> bool:
    """Whether a product in bfloat16 ends Python, tried in another process."""
    program = 'import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x'
    return subprocess.run([sys.executable, '-c', program], capture_output=True).returncode < 0
