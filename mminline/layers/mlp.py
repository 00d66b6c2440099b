"""MLP of a block."""

from mmengine.model import BaseModule
from torch import Tensor, nn


class MLP(BaseModule):
    """Two linears with a GELU between.

    Args:
        embed_dims: Channels of the tokens.
        ratio: Hidden channels for each channel of the tokens.
        drop_rate: Dropout after the second linear.
    """

    def __init__(self, embed_dims: int, ratio: float, drop_rate: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, int(embed_dims * ratio))
        self.act = nn.GELU()
        self.fc2 = nn.Linear(int(embed_dims * ratio), embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x_BLC: Tensor) -> Tensor:
        return self.drop(self.fc2(self.act(self.fc1(x_BLC))))
