"""Backbones small enough for tests of behaviour, images for them, weights that all matter."""

import torch
from torch import Tensor, nn

from mminline.models import InLineDeiT, InLinePVT, InLineSwin

SIZES = dict(
    embed_dims=(8, 16, 24, 32), depths=(2, 1, 2, 1), num_heads=(1, 2, 3, 4), mlp_ratios=(2, 2, 1, 1)
)
# Stage 1 starts InLine and goes on softmax, stage 2 and 4 are of one kind, stage 3 is mixed.
SWIN_SIZES = dict(SIZES, depths=(3, 2, 2, 1), inline_depths=(1, 2, 1, 0))
# Four blocks, so that all backbones have four outputs.
DEIT_SIZES = dict(embed_dims=(8,), depths=(4,), num_heads=(2,), mlp_ratios=(2,))
ARCHS = {InLinePVT: SIZES, InLineSwin: SWIN_SIZES, InLineDeiT: DEIT_SIZES}
BACKBONES = list(ARCHS)
PYRAMIDS = [InLinePVT, InLineSwin]
STRIDES = {InLinePVT: (4, 8, 16, 32), InLineSwin: (4, 8, 16, 32), InLineDeiT: (16, 16, 16, 16)}
CHANNELS = {InLinePVT: (8, 16, 24, 32), InLineSwin: (8, 16, 24, 32), InLineDeiT: (8, 8, 8, 8)}


def build(backbone: type, **options) -> nn.Module:
    """A tiny backbone whose biases, norms and tables are random too, so that each has a say."""
    torch.manual_seed(0)
    defaults = dict(arch=ARCHS[backbone], out_indices=(0, 1, 2, 3))
    return randomize(backbone(**{**defaults, **options}))


def randomize(module: nn.Module, std: float = 0.2) -> nn.Module:
    """Fill all parameters at random; weights of norms vary around 1."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            # Not in place: the numbers would depend on the order of a parameter in memory.
            values = torch.empty(parameter.shape, dtype=parameter.dtype)
            parameter.copy_(values.normal_(std=std, generator=generator))
            if 'norm' in name and name.endswith('weight'):
                parameter.add_(1)
    return module


def image(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A random image batch, the same for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=dtype)


def weighted_sum(outputs: tuple[Tensor, ...]) -> Tensor:
    """A loss that gives every value a different gradient."""
    return sum((output * image(*output.shape, dtype=output.dtype)).sum() for output in outputs)


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    """The gradient of every parameter by name."""
    return {name: parameter.grad for name, parameter in module.named_parameters()}
