"""Choose how a block runs: the one place that asks torch and the block which state they are in.

Whatever is not exactly as it was built, or is observed, runs plainly through ordinary module
calls: a form that reads weights, or runs a layer in pieces, would pass by an adapter or a hook.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn
from torch._C import _functorch
from torch._subclasses import FakeTensor
from torch.nn.modules import module as torch_module
from torch.utils import _python_dispatch

from ..layers import MLP, Block, InLineAttention, SoftmaxAttention
from ..layers.as_built import HOOKS, find_change, find_oddity
from . import slabs

VARIABLE = 'MMINLINE_EXECUTION'

# Parts of the modules that the fast forms know, each with the classes it may be of.
_LINEAR, _NORM, _DROP = (nn.Linear,), (nn.LayerNorm,), (nn.Dropout,)
_PARTS = {
    Block: dict(norm1=_NORM, attn=None, norm2=_NORM, mlp=(MLP,), drop_path=(DropPath, nn.Identity)),
    MLP: dict(fc1=_LINEAR, act=(nn.GELU,), fc2=_LINEAR, drop=_DROP),
    InLineAttention: dict(qkv=_LINEAR, local_kernel=(nn.Sequential,), proj=_LINEAR, drop=_DROP),
    SoftmaxAttention: dict(qkv=_LINEAR, proj=_LINEAR, drop=_DROP),
    nn.Sequential: {'0': (nn.Conv1d,), '1': (nn.GELU,), '2': (nn.Conv1d,)},
}
_LEAVES = (nn.Linear, nn.LayerNorm, nn.Dropout, nn.GELU, nn.Conv1d, DropPath, nn.Identity)
_METHODS = {
    kind: {name: value for name, value in vars(kind).items() if callable(value)}
    for kind in (*_PARTS, *_LEAVES)
}
_CALL = nn.Module.__call__


class Decision(NamedTuple):
    """Form in which a block runs, and the reason.

    Attributes:
        name: 'plain', 'fused', 'streamed' or 'exported'.
        reason: In words.
        one_pass: Whether linears take bias and GELU along in one pass.
        dtype: Type in which products of tokens run, for the fused and the streamed form.
    """

    name: str
    reason: str
    one_pass: bool = False
    dtype: torch.dtype | None = None

    def __str__(self) -> str:
        return f'{self.name}: {self.reason}'


def choose(
    block: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], streaming: bool | None = None
) -> Decision:
    """Choose how ``run`` runs a block or an attention layer, without running it.

    ``MMINLINE_EXECUTION=plain`` makes everything run plainly; 'auto' is the default.

    Args:
        block: ``Block`` or attention layer.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid.
        streaming: Whether a block runs in bands in inference: None for on a CPU, True for on
            any device, False for never.
    """
    _check_slab(block, hw_shape)
    if is_forced_plain():
        return Decision('plain', f'{VARIABLE}=plain')
    change = _describe_change(block)
    if change is not None:
        return Decision('plain', change)
    if is_recording():
        return Decision('exported', 'torch.compile or torch.export records a graph')
    obstacle = find_observer() or _find_misfit(block, x_BLC, hw_shape)
    if obstacle:
        return Decision('plain', obstacle)
    autocast = autocasts(x_BLC)
    dtype = _product_dtype(x_BLC, autocast)
    one_pass = _can_fuse_linears(block, x_BLC, dtype)
    obstacle = _find_obstacle_to_streaming(block, x_BLC, hw_shape, streaming)
    if obstacle is None:
        return Decision('streamed', f'inference on {x_BLC.device.type}', one_pass, dtype)
    if autocast and not one_pass:
        return Decision('plain', f'{obstacle}, and autocast picks the precision of each operation')
    return Decision('fused', obstacle, one_pass, dtype)


def is_recording() -> bool:
    """Whether a graph is recorded that may have to serve images of any size."""
    return torch.compiler.is_compiling()


def is_exporting() -> bool:
    """Whether ``torch.export`` is at work; torch 2.6 cannot tell."""
    return getattr(torch.compiler, 'is_exporting', bool)()


def can_read(tensor: Tensor) -> bool:
    """Whether a branch may depend on the values of a tensor.

    Fake, meta and vmapped tensors have none, and a graph that is recorded or captured would keep
    the branch for values that are to come.
    """
    if is_recording() or torch.jit.is_tracing():
        return False
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    # Infra modes are those of tracers; others, such as counters of FLOPs, only watch.
    if any(mode.is_infra_mode() for mode in _python_dispatch._get_current_dispatch_mode_stack()):
        return False
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            return False
        tensor = _functorch.get_unwrapped(tensor)
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def _check_slab(block: nn.Module, hw_shape: tuple[int, int]) -> None:
    """Refuse what cannot be computed, or not alike, by processes that share images."""
    if not isinstance(hw_shape, slabs.SlabShape):
        if slabs.is_parallel():
            raise ValueError(
                'blocks inside spatial_parallel have to know their slab: InLinePVT and InLineSwin '
                'tell them, other models run on whole images, outside of it'
            )
        return
    if isinstance(block, Block) and type(block)._forward is not Block._forward:
        raise ValueError(
            f'{type(block).__name__} overrides _forward, so it cannot run over several processes'
        )
    if getattr(getattr(block, 'attn', block), 'num_extra_tokens', 0):
        raise ValueError('tokens in front of the grid belong to no slab of it')
    if is_recording() or torch.jit.is_tracing():
        raise ValueError('a recorded graph cannot hold the exchange between processes')
    if any(isinstance(part, nn.Dropout) and part.training and part.p for part in block.modules()):
        raise ValueError(
            'dropout of tokens would not be that of one process, so drop_rate has to be 0 for '
            'training over several processes; drop_path_rate may be set'
        )


def is_forced_plain() -> bool:
    """Whether ``MMINLINE_EXECUTION`` asks for plain execution."""
    value = os.environ.get(VARIABLE, 'auto')
    if value not in ('auto', 'plain'):
        raise ValueError(f"{VARIABLE} has to be 'auto' or 'plain', got {value!r}")
    return value == 'plain'


@torch.compiler.assume_constant_result
def _describe_change(block: nn.Module) -> str | None:
    """Say what about a block is not as it was built; compilers ask once and do not trace this."""
    if type(block) not in _PARTS:
        return f'{type(block).__name__} is no layer that has a faster form'
    for kind, methods in _METHODS.items():
        for name, method in methods.items():
            if vars(kind).get(name) is not method:
                return f'{kind.__name__}.{name} is replaced'
    path = 'block' if type(block) is Block else 'layer'
    return next(_changes(block, path, (type(block),)), None)


def _changes(module: nn.Module, path: str, kinds: tuple[type, ...]) -> Iterator[str]:
    kind = type(module) if type(module) in kinds else kinds[0]
    if change := find_change(module, kind, _METHODS[kind]):
        yield f'{path} {change}'
        return
    if kind is nn.GELU and module.approximate != 'none':
        yield f'{path} approximates'
    if kind is nn.Linear and module.bias is None:
        yield f'{path} has no bias'
    parts = _PARTS.get(kind, {})
    for name, part in module._modules.items():
        if name not in parts:
            yield f'{path} has a new part, {name}'
        elif parts[name]:
            yield from _changes(part, f'{path}.{name}', parts[name])
        elif type(part) in _PARTS:  # one of our attention layers; others are called as they are
            yield from _changes(part, f'{path}.{name}', (type(part),))


def find_observer() -> str | None:
    """Name what watches or rewrites every operation.

    A trace can hold known operations alone; counters of FLOPs and the like watch for the operations
    they know, and hooks on all modules expect to see each module run once.
    """
    if torch.jit.is_tracing():
        return 'torch.jit traces'
    if mode := _python_dispatch._get_current_dispatch_mode():
        return f'{type(mode).__name__.lstrip("_")} watches operations'
    if torch._C._are_functorch_transforms_active():
        return 'a torch.func transform is active'
    if nn.Module.__call__ is not _CALL:
        return 'torch.nn.Module.__call__ is replaced'
    if any(getattr(torch_module, f'_global{name}', None) for name in HOOKS):
        return 'all modules have a hook'
    return None


def _find_misfit(block: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int]) -> str | None:
    """Name what is unusual about the tokens; the plain form knows it, or says what is wrong."""
    if oddity := find_oddity(x_BLC):
        return f'the tokens are {oddity}'
    num_extra_tokens = getattr(getattr(block, 'attn', block), 'num_extra_tokens', 0)
    num_tokens = num_extra_tokens + hw_shape[0] * hw_shape[1]
    if x_BLC.dim() != 3 or x_BLC.shape[1] != num_tokens or not x_BLC.numel():
        return f'the tokens have the shape {tuple(x_BLC.shape)} for a grid of {tuple(hw_shape)}'
    for name, parameter in block.named_parameters():
        if oddity := find_oddity(parameter):
            return f'{name} is {oddity}'
        if parameter.device != x_BLC.device:
            return f'{name} is on {parameter.device}, the tokens are on {x_BLC.device}'
        if parameter.dtype != x_BLC.dtype and not autocasts(x_BLC):
            return f'{name} is in {parameter.dtype}, the tokens are in {x_BLC.dtype}'
    return None


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on for the device of a tensor; some devices do not know it."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _product_dtype(x: Tensor, autocast: bool) -> torch.dtype:
    """Type in which products of a tensor with weights run: that of autocast, if it is on."""
    if autocast and x.dtype != torch.float64:
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def is_unwatched_inference(x: Tensor) -> bool:
    """Whether operations may run on threads of their own: in inference on a CPU, if none watch."""
    return (
        not torch.is_grad_enabled()
        and not is_recording()
        and x.device.type == 'cpu'
        and find_observer() is None
        and x.numel() > 0  # last, because a trace would record the question
    )


def is_plain_inference(x: Tensor) -> bool:
    """Whether an operation may be replaced by one that knows inference in float32 on a CPU only."""
    return is_unwatched_inference(x) and x.dtype == torch.float32 and not autocasts(x)


def _can_fuse_linears(block: nn.Module, x_BLC: Tensor, dtype: torch.dtype) -> bool:
    """Whether oneDNN can take the linears: it reads a bias without a look at its stride."""
    return (
        x_BLC.device.type == 'cpu'
        and x_BLC.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and (dtype == torch.float32 or (dtype == torch.bfloat16 and _knows_bfloat16()))
        and all(
            part.bias is None or part.bias.is_contiguous()
            for part in block.modules()
            if isinstance(part, nn.Linear)
        )
    )


def _knows_bfloat16() -> bool:
    """Whether oneDNN has products in bfloat16 for this CPU, be they emulated."""
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _find_obstacle_to_streaming(
    block: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], streaming: bool | None
) -> str | None:
    if type(block) is not Block:
        return 'a layer by itself does not run in bands'
    if streaming is False:
        return 'streaming=False'
    if torch.is_grad_enabled():
        return 'gradients are enabled'
    # Dropout can be kept on by itself, to sample predictions.
    if any(part.training for part in block.modules()):
        return 'a part is in training mode'
    if streaming is None and x_BLC.device.type != 'cpu':
        return f'streaming=None on {x_BLC.device.type}'
    attention = block.attn
    if type(attention) is InLineAttention:
        if attention.windows(slabs.whole_shape(hw_shape)) is not None:
            return 'attention is kept in windows'
        if not attention.can_fold(slabs.whole_tokens(x_BLC, hw_shape)):
            return 'queries and keys are not folded'
        return None
    if type(attention) is SoftmaxAttention and attention.window_size is not None:
        return None
    return f'{type(attention).__name__} does not run in bands'
