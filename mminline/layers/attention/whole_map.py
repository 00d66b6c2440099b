"""Template of attention over the whole map: everything but the rule that mixes values."""

from mmengine.model import BaseModule
from torch import Tensor, nn

from ..functional import behind_extra_tokens
from .checks import check_extra_tokens, check_heads, check_tokens
from .weights import AttentionWeights, cells_of_whole_map, split_heads


class WholeMapAttention(BaseModule):
    """Layer in which every token sees every token, called as ``layer(x_BLC, hw_shape)``.

    ``y = proj(mix(q, k, v) + depthwise3x3(v))``. A kind is a subclass with a name, a
    ``map_features``, a ``mix`` of linear cost and its explicit weights, ``rule``.

    Args:
        embed_dims: Channels of the tokens.
        num_heads: Heads; they have to divide the channels.
        local_residual: Whether to add a learned 3x3 depth-wise convolution of the values; None
            for as the paper of the kind has it.
        drop_rate: Dropout after the output projection.
        num_extra_tokens: Tokens in front of the grid, such as a class token. They take part in
            the attention, but have no neighbours for the convolution.
        init_cfg: As everywhere in OpenMMLab.
    """

    # Name of the rule, for analysis.
    kind: str
    # Whether the paper of the kind has a convolution.
    convolves: bool = False

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        local_residual: bool | None = None,
        drop_rate: float = 0.0,
        num_extra_tokens: int = 0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_heads(embed_dims, num_heads)
        check_extra_tokens(num_extra_tokens)
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.num_extra_tokens = num_extra_tokens
        self.scale = (embed_dims // num_heads) ** -0.5
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims)
        # Without a bias: the one of the projection does the same.
        self.local = (
            nn.Conv2d(embed_dims, embed_dims, 3, padding=1, groups=embed_dims, bias=False)
            if (self.convolves if local_residual is None else local_residual)
            else None
        )
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def map_features(self, x_BNLD: Tensor) -> Tensor:
        """Map queries and keys."""
        return x_BNLD

    def mix(self, q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor) -> Tensor:
        """Mix values; queries and keys are behind the feature map."""
        raise NotImplementedError

    def rule(self, q_BNLD: Tensor, k_BNMD: Tensor, visible_BNLM: Tensor | None = None) -> Tensor:
        """Return the weights that ``mix`` gives the values, ``(B, N, L, M)``."""
        raise NotImplementedError

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        check_tokens(x_BLC, hw_shape, self.embed_dims, self.num_extra_tokens)
        q_BNLD, k_BNLD, v_BNLD = self._split(x_BLC)
        mixed_BNLD = self.mix(self.map_features(q_BNLD), self.map_features(k_BNLD), v_BNLD)
        mixed_BLC = mixed_BNLD.transpose(1, 2).flatten(-2)
        if self.local is not None:
            mixed_BLC = mixed_BLC + self._convolve(v_BNLD.transpose(1, 2).flatten(-2), hw_shape)
        return self.project(mixed_BLC)

    def _convolve(self, v_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        grid_BHWC = v_BLC[:, self.num_extra_tokens :].unflatten(1, hw_shape)
        local_BCHW = self.local(grid_BHWC.permute(0, 3, 1, 2))
        local_BLC = local_BCHW.permute(0, 2, 3, 1).flatten(1, 2)
        return behind_extra_tokens(local_BLC, self.num_extra_tokens)

    def _split(self, x_BLC: Tensor) -> list[Tensor]:
        return [split_heads(part, self.num_heads) for part in self.qkv(x_BLC).chunk(3, dim=-1)]

    def project(self, mixed_BLC: Tensor) -> Tensor:
        """Finish the layer: output projection and dropout."""
        return self.drop(self.proj(mixed_BLC))

    def attention_weights(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> AttentionWeights:
        """Read the layer's attention on an input, for tests and analysis."""
        q_BNLD, k_BNMD, v_BNMD = self._split(x_BLC)
        kernel_BC33 = None
        if self.local is not None:
            kernel_BC33 = self.local.weight.squeeze(1).expand(len(x_BLC), -1, -1, -1)
        return AttentionWeights(
            self.kind,
            self.rule,
            q_BNLD,
            self.map_features(k_BNMD),
            v_BNMD,
            hw_shape,
            hw_shape,
            cells_of_whole_map(x_BLC, self.num_extra_tokens),
            self.map_features,
            kernel_BC33=kernel_BC33,
            num_extra_tokens=self.num_extra_tokens,
            finish=self.project,
        )
