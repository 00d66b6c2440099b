"""3x3 convolutions of necks and heads on a CPU, by Winograd's algorithm.

It computes tiles of 6 x 6 outputs from 8 x 8 products instead of 9 x 36, a fifth. oneDNN, which
PyTorch calls for convolutions, does without it; NNPACK, another part of PyTorch, has it. It is two
to three times as fast on large maps, and rounds to about 1e-5 of the largest output, oneDNN to
3e-6.
"""

import torch
from torch import Tensor, nn

from .decision import is_plain_inference

# Below these the transforms of weights and tiles cost more than they save.
SMALLEST_MAP, SMALLEST_BATCH, FEWEST_CHANNELS = 1500, 4000, 64


def suits_winograd(conv: nn.Conv2d) -> bool:
    """Whether the settings of a convolution are those that the fast form knows."""
    return (
        (conv.kernel_size, conv.stride, conv.dilation, conv.groups) == ((3, 3), (1, 1), (1, 1), 1)
        and conv.padding_mode == 'zeros'
        and conv.padding in ((0, 0), (1, 1))
        and min(conv.in_channels, conv.out_channels) >= FEWEST_CHANNELS
        and torch.backends.nnpack.is_available()  # also initialises it
    )


def run_convolution(conv: nn.Conv2d, x_BCHW: Tensor) -> Tensor:
    """Run a convolution that suits, in the fast form in inference where maps are large enough."""
    fits = x_BCHW.dim() == 4 and x_BCHW.shape[1] == conv.weight.shape[1]
    if not (fits and conv.weight.dtype == torch.float32 and is_plain_inference(x_BCHW)):
        return type(conv).forward(conv, x_BCHW)
    batch, _, height, width = x_BCHW.shape
    # NNPACK has two forms: images one by one, and batches of small maps.
    if height * width >= SMALLEST_MAP:
        maps = [_winograd(conv, x_1CHW) for x_1CHW in x_BCHW.split(1)]
        return maps[0] if batch == 1 else torch.cat(maps)
    if batch * height * width >= SMALLEST_BATCH and batch > 1:
        return _winograd(conv, x_BCHW)
    return type(conv).forward(conv, x_BCHW)


def _winograd(conv: nn.Conv2d, x_BCHW: Tensor) -> Tensor:
    return torch._nnpack_spatial_convolution(x_BCHW, conv.weight, conv.bias, conv.padding)
