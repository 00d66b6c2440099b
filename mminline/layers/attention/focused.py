"""Focused linear attention: queries and keys drawn to their largest channels (arXiv:2308.00442)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ...registry import MODELS
from ..functional import linear_attention
from ..statistics import upcast
from .inline import linear_weights
from .whole_map import WholeMapAttention


@MODELS.register_module()
class FocusedLinearAttention(WholeMapAttention):
    """Focused linear attention, called as ``layer(x_BLC, hw_shape)``.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        focus: Power to which channels are raised; 1 for plain linear attention.
        local_residual: Whether to add a 3x3 convolution, see ``WholeMapAttention``.
        drop_rate: Dropout after the output projection.
        num_extra_tokens: Tokens in front of the grid.
        init_cfg: As everywhere in OpenMMLab.
    """

    kind = 'focused'
    convolves = True

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        focus: float = 3.0,
        local_residual: bool | None = None,
        drop_rate: float = 0.0,
        num_extra_tokens: int = 0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(
            embed_dims, num_heads, local_residual, drop_rate, num_extra_tokens, init_cfg
        )
        if focus < 1:
            raise ValueError(f'focus has to be at least 1, got {focus=}')
        self.focus = focus

    def map_features(self, x_BNLD: Tensor) -> Tensor:
        return focus_channels(x_BNLD, self.focus)

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        return linear_attention(q_BNLD, k_BNMD, v_BNMD)

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        return linear_weights(q_BNLD, k_BNMD, visible_BNLM)


def focus_channels(x: Tensor, power: float) -> Tensor:
    """Return ``|u| / |u^power| * u^power`` of ``u = ReLU(x)``: turned to its largest channels.

    The length stays. Powers are taken of vectors of length 1, which neither overflow nor vanish;
    a vector without a positive channel stays zero.
    """
    x = F.relu(upcast(x))
    direction = F.normalize(F.normalize(x, dim=-1) ** power, dim=-1)
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True) * direction
