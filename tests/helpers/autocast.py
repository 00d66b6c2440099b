"""Training in bfloat16 under autocast on a CPU: how far it is from float64."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from mminline.layers import Block, InLineAttention

from .tiny import gradients, image, randomize


def backward(run: Callable[[Tensor], Tensor], block: nn.Module, x: Tensor) -> dict:
    """Output and gradients by name, the same random numbers each time."""
    block.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(0)
    out = run(x)
    # Drawn in one type, as the generator gives other numbers in another; turned around, as tokens
    # of this shape are the same numbers.
    out.backward(image(*out.shape).flip(1).to(out.dtype))
    return {'out': out, 'x': x.grad, **gradients(block)}


def shifting_block(**options) -> nn.Module:
    """A block whose first norm shifts channels by more than they vary."""
    block = randomize(Block(InLineAttention(32, 2, **options), 32, 2)).train()
    with torch.no_grad():
        block.norm1.bias.mul_(15)
    return block


def assert_as_exact_as_plain(
    run: Callable[[nn.Module, Tensor], Tensor],
    plain: Callable[[nn.Module, Tensor], Tensor],
    block: nn.Module,
    x: Tensor,
) -> None:
    """Compare the errors of two forms under autocast, in values and in all gradients.

    Args:
        run: Runs the block in the form that is tested.
        plain: Runs it as it is written.
        block: Block in float32, in training mode.
        x: Its tokens.
    """
    exact = copy.deepcopy(block).double()
    expected = backward(partial(plain, exact), exact, x.double())

    def errors(run: Callable) -> dict[str, float]:
        with torch.autocast('cpu', dtype=torch.bfloat16):
            found = backward(partial(run, block), block, x)
        assert found['out'].dtype == torch.float32
        return {
            name: ((found[name] - value).norm() / value.norm()).item()
            for name, value in expected.items()
            if value is not None
        }

    allowed = errors(plain)
    for name, error in errors(run).items():
        assert error < 3 * allowed[name] + 1e-3, name
