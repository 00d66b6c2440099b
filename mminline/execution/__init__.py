"""Execution of blocks: one decision for each call, and the forms that it chooses from.

The forms compute the same with the same parameters. ``layers`` has the plain one; the others live
here: fused (less memory traffic), streamed (bands of rows that stay in the cache), exported
(graphs without branches on sizes).
"""

from torch import Tensor, nn

from . import exported, fused, streamed
from .decision import Decision, can_read, choose, is_exporting, is_forced_plain, is_recording

__all__ = ['Decision', 'can_read', 'choose', 'is_forced_plain', 'is_recording', 'run']


def run(
    block: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int], streaming: bool | None = None
) -> Tensor:
    """Run a block or an attention layer in the form that fits, see ``choose``.

    The result is that of ``block(x_BLC, hw_shape)`` up to rounding; the tokens stay as they are.

    Args:
        block: ``Block`` or attention layer.
        x_BLC: Its tokens.
        hw_shape: Height and width of their grid.
        streaming: Whether a block runs in bands in inference: None for on a CPU, True for on
            any device, False for never.
    """
    decision = choose(block, x_BLC, hw_shape, streaming)
    if decision.name == 'streamed':
        return streamed.run(block, x_BLC, hw_shape, decision.one_pass)
    if decision.name == 'fused':
        return fused.run(block, x_BLC, hw_shape, decision.one_pass)
    if decision.name == 'exported':
        return exported.run(block, x_BLC, hw_shape, is_exporting())
    return block(x_BLC, hw_shape)
