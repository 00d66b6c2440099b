"""Reference implementations with explicit weights: slow and simple, the oracle of the tests.

The weights of a kind of attention stand beside its layer, in ``attention/``. ``visible_BNLM`` tells
which keys a query may see; without it, all. Weights are those among the visible keys, as if there
were no others, and 0 for the rest.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention.inline import inline_weights, linear_weights
from .attention.softmax import softmax_weights

__all__ = ['inline_weights', 'linear_weights', 'local_residual', 'softmax_weights']


def local_residual(
    v_BLC: Tensor, kernel_BC33: Tensor, hw_shape: tuple[int, int], num_extra_tokens: int = 0
) -> Tensor:
    """Run the 3x3 step as a sum over the nine neighbours of a zero-padded grid.

    Tokens in front of the grid have no neighbours: their sum is empty.
    """
    extra_BLC, v_BLC = v_BLC[:, :num_extra_tokens], v_BLC[:, num_extra_tokens:]
    height, width = hw_shape
    padded = F.pad(v_BLC.unflatten(1, hw_shape), (0, 0, 1, 1, 1, 1))
    out = torch.zeros_like(v_BLC).unflatten(1, hw_shape)
    for dy in range(3):
        for dx in range(3):
            neighbour = padded[:, dy : dy + height, dx : dx + width]
            out = out + neighbour * kernel_BC33[:, None, None, :, dy, dx]
    return torch.cat([torch.zeros_like(extra_BLC), out.flatten(1, 2)], dim=1)
