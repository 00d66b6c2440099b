"""InLine attention: injective, linear in tokens, with a local residual (arXiv:2412.06590)."""

import functools

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from ...registry import MODELS
from ..as_built import is_plain_linear
from ..functional import (
    FEATURE_MAPS,
    NON_NEGATIVE_FEATURE_MAPS,
    folded_inline_attention,
    inline_attention,
    linear_attention,
    local_residual,
)
from ..statistics import full_precision, token_mean
from ..windows import Windows, window_shift
from .checks import check_extra_tokens, check_heads, check_tokens
from .weights import AttentionWeights, cells_of_whole_map, split_heads


@MODELS.register_module()
class InLineAttention(BaseModule):
    """Injective linear attention with a local residual, called as ``layer(x_BLC, hw_shape)``.

    ``y = proj(attention(q, k, v) + depthwise3x3(v, kernel(mean(x))))``

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        feature_map: Map of queries and keys: 'identity', 'relu', 'leaky_relu' or 'exp'.
        injective: False for plain linear attention, which needs 'relu' or 'exp'.
        local_residual: False to leave out the 3x3 step.
        window_size: Side of the windows that attention is kept in; None for the whole map.
        shifted: Whether windows are shifted by half their side.
        drop_rate: Dropout after the output projection.
        num_extra_tokens: Tokens in front of the grid, such as a class token. They take part in
            the attention and in the mean token, but have no neighbours for the 3x3 step.
        init_cfg: As everywhere in OpenMMLab.
    """

    # None: the cheaper of the two forms; True or False forces one, where the maths allows it.
    folded: bool | None = None

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        feature_map: str = 'identity',
        injective: bool = True,
        local_residual: bool = True,
        window_size: int | None = None,
        shifted: bool = False,
        drop_rate: float = 0.0,
        num_extra_tokens: int = 0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_heads(embed_dims, num_heads)
        if feature_map not in FEATURE_MAPS:
            raise ValueError(
                f'feature_map has to be one of {list(FEATURE_MAPS)}, got {feature_map=}'
            )
        if not injective and feature_map not in NON_NEGATIVE_FEATURE_MAPS:
            raise ValueError(
                'injective=False divides weights by their sum, so the feature map has to be free '
                f'of negative values: one of {list(NON_NEGATIVE_FEATURE_MAPS)}, '
                f'got feature_map={feature_map!r}'
            )
        if window_size is not None and window_size < 1:
            raise ValueError(f'window_size has to be None or at least 1, got {window_size=}')
        check_extra_tokens(num_extra_tokens, window_size)
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.scale = (embed_dims // num_heads) ** -0.5
        self.feature_map = feature_map
        self.injective = injective
        self.window_size = window_size
        self.shifted = shifted
        self.num_extra_tokens = num_extra_tokens
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims)
        self.local_kernel = (
            nn.Sequential(
                nn.Conv1d(embed_dims, embed_dims, 1, groups=num_heads),
                nn.GELU(),
                nn.Conv1d(embed_dims, 9 * embed_dims, 1, groups=num_heads),
            )
            if local_residual
            else None
        )
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        check_tokens(x_BLC, hw_shape, self.embed_dims, self.num_extra_tokens)
        windows = self.windows(hw_shape)
        if windows is None:
            return self.project(self.mix(x_BLC, hw_shape))
        # Each window by itself, padding left out.
        valid_BL1 = windows.split(x_BLC.new_ones(1, x_BLC.shape[1], 1))
        valid_BL1 = valid_BL1.repeat(len(x_BLC), 1, 1)
        mixed = self.mix(windows.split(x_BLC), (windows.side, windows.side), valid_BL1)
        return self.project(windows.merge(mixed))

    def windows(self, hw_shape: tuple[int, int]) -> Windows | None:
        """Cut a grid is attended in; None for one that is attended as a whole."""
        if self.window_size is None or self.window_size >= max(hw_shape):
            return None
        shift = window_shift(hw_shape, self.window_size, self.shifted)
        return Windows(hw_shape, self.window_size, shift)

    def mix(
        self, x_BLC: Tensor, hw_shape: tuple[int, int], valid_BL1: Tensor | None = None
    ) -> Tensor:
        """Mix the values of tokens that all see each other.

        Args:
            x_BLC: Tokens of a grid, behind the extra ones.
            hw_shape: Height and width of the grid.
            valid_BL1: 1 for tokens that take part, 0 for padding. All take part if not given.
        """
        x_mean_B1C = token_mean(x_BLC, valid_BL1)
        if valid_BL1 is None and self.can_fold(x_BLC.shape[1]):
            mixed_BLC, v_BLC = self.mix_folded(x_BLC, x_mean_B1C)
        else:
            mixed_BLC, v_BLC = self.mix_qkv(self.qkv(x_BLC), valid_BL1)
        if self.local_kernel is None:
            return mixed_BLC
        kernel_BC33 = self.make_kernel(x_mean_B1C)
        return mixed_BLC + local_residual(
            v_BLC, kernel_BC33, hw_shape, num_extra_tokens=self.num_extra_tokens
        )

    def can_fold(self, num_tokens: int) -> bool:
        """Whether queries and keys can be folded away, and whether that pays.

        The folded form trades work on tokens for work on C x C matrices; measured, it pays from
        four tokens a channel on.
        """
        if not self.has_folded_form() or not is_plain_linear(self.qkv):
            return False
        return num_tokens >= 4 * self.embed_dims if self.folded is None else self.folded

    def has_folded_form(self) -> bool:
        """Whether queries and keys are linear in the tokens."""
        return self.injective and self.feature_map == 'identity'

    def mix_folded(self, x_BLC: Tensor, x_mean_B1C: Tensor) -> tuple[Tensor, Tensor]:
        """Mix by the folded form; returns mixed values and values, both (B, L, C)."""
        return folded_inline_attention(
            x_BLC, x_mean_B1C, self.qkv.weight, self.qkv.bias, self.num_heads, self.scale
        )

    def mix_qkv(self, qkv: Tensor, valid_BL1: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mix by the paper's equation; returns mixed values and values, both (B, L, C)."""
        if valid_BL1 is not None:
            # A zero token has the bias as its value; outside the map a value has to be zero.
            qkv = qkv * valid_BL1
            valid_BL1 = valid_BL1.unsqueeze(1)
        q_BNLD, k_BNLD, v_BNLD = self.split_qkv(qkv)
        if self.injective:
            mixed_BNLD = inline_attention(q_BNLD, k_BNLD, v_BNLD, self.scale, valid_BL1)
        else:
            mixed_BNLD = linear_attention(q_BNLD, k_BNLD, v_BNLD, valid_BL1)
        return mixed_BNLD.transpose(1, 2).flatten(-2), qkv.chunk(3, dim=-1)[2]

    def split_qkv(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, after the feature map, and values; all ``(B, N, L, D)``."""
        q_BNLD, k_BNLD, v_BNLD = (split_heads(part, self.num_heads) for part in qkv.chunk(3, -1))
        feature_map = FEATURE_MAPS[self.feature_map]
        return feature_map(q_BNLD), feature_map(k_BNLD), v_BNLD

    def make_kernel(self, x_mean_B1C: Tensor) -> Tensor:
        """Make the 3x3 kernel of each image and channel from its mean token."""
        with full_precision(x_mean_B1C):
            mean_BC1 = x_mean_B1C.transpose(1, 2).to(self.local_kernel[0].weight.dtype)
            return self.local_kernel(mean_BC1).unflatten(1, (-1, 3, 3)).squeeze(-1)

    def project(self, mixed_BLC: Tensor) -> Tensor:
        """Finish the layer: output projection and dropout."""
        return self.drop(self.proj(mixed_BLC))

    def attention_weights(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> AttentionWeights:
        """Read the layer's attention on an input, for tests and analysis."""
        windows = self.windows(hw_shape)
        cell_BL = cells_of_whole_map(x_BLC, self.num_extra_tokens)
        grid, valid_BL1, regions = hw_shape, None, {}
        if windows is not None:
            grid = (windows.side, windows.side)
            cell_BL = windows.cells(x_BLC.device)[0].repeat(len(x_BLC), 1)
            valid_BL1 = (cell_BL >= 0).unsqueeze(-1).to(x_BLC.dtype)
            x_BLC = windows.split(x_BLC)
            # Sides that the shift brings together are not kept apart; only padding is left out.
            regions = dict(q_region_BL=torch.zeros_like(cell_BL), k_region_BM=cell_BL.clamp(max=0))
        qkv = self.qkv(x_BLC) if valid_BL1 is None else self.qkv(x_BLC) * valid_BL1
        q_BNLD, k_BNMD, v_BNMD = (split_heads(part, self.num_heads) for part in qkv.chunk(3, -1))
        kernel_BC33 = None
        if self.local_kernel is not None:
            kernel_BC33 = self.make_kernel(token_mean(x_BLC, valid_BL1))
        rule = functools.partial(inline_weights, scale=self.scale)
        feature_map = FEATURE_MAPS[self.feature_map]
        return AttentionWeights(
            'inline' if self.injective else 'linear',
            rule if self.injective else linear_weights,
            q_BNLD,
            feature_map(k_BNMD),
            v_BNMD,
            hw_shape,
            grid,
            cell_BL,
            feature_map,
            kernel_BC33=kernel_BC33,
            num_extra_tokens=self.num_extra_tokens,
            finish=lambda mixed: self.project(windows.merge(mixed) if windows else mixed),
            **regions,
        )


def inline_weights(
    q_BNLD: Tensor, k_BNMD: Tensor, scale: float, visible_BNLM: Tensor | None = None
) -> Tensor:
    """Weights of injective linear attention, ``(B, N, L, M)`` (arXiv:2412.06590, Eq. 5)."""
    if visible_BNLM is None:
        visible_BNLM = q_BNLD.new_ones(1, 1, 1, k_BNMD.shape[-2])
    visible_BNLM = visible_BNLM.to(q_BNLD.dtype)
    num_keys = visible_BNLM.sum(dim=-1, keepdim=True).clamp(min=1)
    scores_BNLM = scale / num_keys * (q_BNLD @ k_BNMD.transpose(-2, -1))
    mean_BNL1 = (scores_BNLM * visible_BNLM).sum(dim=-1, keepdim=True) / num_keys
    return (scores_BNLM - mean_BNL1 + 1 / num_keys) * visible_BNLM


def linear_weights(q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
    """Weights of plain linear attention, divided by their sum, ``(B, N, L, M)``."""
    scores_BNLM = q_BNLD @ k_BNMD.transpose(-2, -1)
    if visible_BNLM is not None:
        scores_BNLM = scores_BNLM * visible_BNLM
    return scores_BNLM / (scores_BNLM.sum(dim=-1, keepdim=True) + 1e-6)
