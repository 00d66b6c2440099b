"""A stage of a backbone: the blocks of one resolution."""

from collections.abc import Iterable

from mmengine.model import BaseModule
from torch import Tensor, nn

from ... import execution
from ...execution.slabs import SlabShape, resize_position
from ...layers import Block


class Stage(BaseModule):
    """Embedding and blocks of one resolution.

    Args:
        embed: From a map to tokens and the shape of their grid.
        blocks: Blocks called as ``block(x_BLC, hw_shape)``.
        position: Initial position embedding, (1, H, W, C), if the stage has one.
        drop_rate: Dropout after the position embedding.
        streaming: Whether blocks run in bands of rows in inference, see ``execution.run``.

    ``slab`` of ``forward`` is that of the stage's own grid, if the map is a part of a larger one.
    """

    def __init__(
        self,
        embed: nn.Module,
        blocks: Iterable[Block],
        position: Tensor | None = None,
        drop_rate: float = 0.0,
        streaming: bool | None = None,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.pos_embed = None if position is None else nn.Parameter(position)
        self.drop = nn.Dropout(drop_rate)
        self.blocks = nn.ModuleList(blocks)
        self.streaming = streaming

    def forward(
        self, map_BCHW: Tensor, slab: SlabShape | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        recording = dict(always_pad=True) if execution.is_recording() else {}
        x_BLC, hw_shape = self.embed(map_BCHW, **recording)
        hw_shape = hw_shape if slab is None else slab
        if self.pos_embed is not None:
            x_BLC = x_BLC + resize_position(self.pos_embed, hw_shape)
        x_BLC = self.drop(x_BLC)
        for block in self.blocks:
            x_BLC = execution.run(block, x_BLC, hw_shape, self.streaming)
        return x_BLC, hw_shape


def to_map(x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """View tokens as a map: they are one already, in channels-last order."""
    return x_BLC.unflatten(1, hw_shape).permute(0, 3, 1, 2)
