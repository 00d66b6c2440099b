"""A stage of a backbone: the blocks of one resolution."""

from collections.abc import Iterable, Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from ... import execution
from ...execution.slabs import SlabShape, resize_position
from ...layers import Block
from ...layers.as_built import find_change


class Stage(BaseModule):
    """Embedding and blocks of one resolution.

    Args:
        embed: From a map to tokens and the shape of their grid.
        blocks: Blocks called as ``block(x_BLC, hw_shape)``.
        position: Initial position embedding, (1, H, W, C), if the stage has one.
        class_token: Initial class token and its position, both (1, 1, C), if there is one: a
            token in front of the grid.
        drop_rate: Dropout after the position embedding.
        streaming: Whether blocks run in bands of rows in inference, see ``execution.run``.

    ``slab`` of ``forward`` is that of the stage's own grid, if the map is a part of a larger one.
    """

    def __init__(
        self,
        embed: nn.Module,
        blocks: Iterable[Block],
        position: Tensor | None = None,
        class_token: tuple[Tensor, Tensor] | None = None,
        drop_rate: float = 0.0,
        streaming: bool | None = None,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.pos_embed = None if position is None else nn.Parameter(position)
        token, token_position = class_token or (None, None)
        self.class_token = None if token is None else nn.Parameter(token)
        self.class_position = None if token is None else nn.Parameter(token_position)
        self.drop = nn.Dropout(drop_rate)
        self.blocks = nn.ModuleList(blocks)
        self.streaming = streaming

    def forward(
        self, map_BCHW: Tensor, slab: SlabShape | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        x_BLC, hw_shape = self.embed_tokens(map_BCHW, slab)
        for block in self.blocks:
            x_BLC = execution.run(block, x_BLC, hw_shape, self.streaming)
        return x_BLC, hw_shape

    def run_packed(
        self, map_BCHW: Tensor, groups: Sequence[execution.Group]
    ) -> tuple[Tensor, tuple[int, int]]:
        """Do what ``forward`` does for images of several sizes at once.

        Args:
            map_BCHW: Maps of one size, zero where an image is not.
            groups: The images, and the grids of their tokens.

        Returns:
            Packed tokens, and height and width of the grid of the whole maps.
        """
        # A patch is that of the image alone: what the image does not cover of it is zero.
        x_BLC, hw_shape = execution.embed(self.embed, map_BCHW, streaming=self.streaming)
        x_1LC = execution.from_grids(x_BLC.unflatten(1, hw_shape), groups)
        if self.pos_embed is not None:
            positions = [
                resize_position(self.pos_embed, group.hw_shape).expand(group.batch, -1, -1)
                for group in groups
            ]
            x_1LC = x_1LC + execution.pack(positions)
        x_1LC = self.drop(x_1LC)
        for block in self.blocks:
            x_1LC = execution.run_packed(block, x_1LC, groups, self.streaming)
        return x_1LC, hw_shape

    def embed_tokens(
        self, map_BCHW: Tensor, slab: SlabShape | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        """Make the tokens that the first block gets, and the shape of their grid."""
        x_BLC, hw_shape = execution.embed(
            self.embed, map_BCHW, self.pos_embed, slab, self.streaming
        )
        if self.class_token is not None:
            class_11C = self.class_token + self.class_position
            x_BLC = torch.cat([class_11C.expand(x_BLC.shape[0], -1, -1), x_BLC], dim=1)
        return self.drop(x_BLC), hw_shape


def to_map(x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """View tokens as a map: they are one already, in channels-last order."""
    return x_BLC.unflatten(1, hw_shape).permute(0, 3, 1, 2)


def is_changed(stage: nn.Module) -> bool:
    """Whether a stage, or its embedding, has to be called because it is not as it was built."""
    if find_change(stage, Stage, ('forward', 'embed_tokens')) or stage.class_token is not None:
        return True
    if find_change(stage.drop, nn.Dropout, ('forward',)):
        return True
    return not execution.is_known_embedding(stage.embed)
