"""Pre-norm transformer block."""

from collections.abc import Callable

import torch.utils.checkpoint
from mmcv.cnn.bricks import DropPath
from mmengine.model import BaseModule
from torch import Tensor, nn

from .mlp import MLP


class Block(BaseModule):
    """Attention and MLP, each behind a LayerNorm and added to its input.

    Args:
        attention: Layer called as ``attention(x_BLC, hw_shape)``.
        embed_dims: Channels of the tokens.
        mlp_ratio: Hidden channels of the MLP for each channel of the tokens.
        norm_eps: Epsilon of both LayerNorms.
        drop_rate: Dropout after the MLP.
        drop_path_rate: Share of images for which a branch is skipped in training.
        with_cp: Whether to save memory in training by computing the block twice.

    ``attend`` of ``forward`` runs the attention layer, ``attend(layer, x_BLC, hw_shape)``; it is
    called if not given.
    """

    def __init__(
        self,
        attention: nn.Module,
        embed_dims: int,
        mlp_ratio: float,
        norm_eps: float = 1e-5,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn = attention
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = MLP(embed_dims, mlp_ratio, drop_rate)
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate else nn.Identity()
        self.with_cp = with_cp

    def forward(
        self,
        x_BLC: Tensor,
        hw_shape: tuple[int, int],
        attend: Callable[[nn.Module, Tensor, tuple[int, int]], Tensor] | None = None,
    ) -> Tensor:
        # Subclasses override `_forward` with two arguments.
        arguments = (x_BLC, hw_shape) if attend is None else (x_BLC, hw_shape, attend)
        if self.with_cp and self.training:
            # The reentrant kind makes DistributedDataParallel see parameters twice.
            return torch.utils.checkpoint.checkpoint(self._forward, *arguments, use_reentrant=False)
        return self._forward(*arguments)

    def _forward(
        self, x_BLC: Tensor, hw_shape: tuple[int, int], attend: Callable | None = None
    ) -> Tensor:
        tokens_BLC = self.norm1(x_BLC)
        if attend is None:
            mixed_BLC = self.attn(tokens_BLC, hw_shape)
        else:
            mixed_BLC = attend(self.attn, tokens_BLC, hw_shape)
        x_BLC = x_BLC + self.drop_path(mixed_BLC)
        return x_BLC + self.drop_path(self.mlp(self.norm2(x_BLC)))
