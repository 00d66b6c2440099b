"""Attention as others write it, and the products that no one can do without."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mminline.layers import InLineAttention


class UsualAttention(nn.Module):
    """InLine attention as one writes it down from the paper, with the weights of our layer.

    Queries, keys and values are built, each head has its ``K^T V``, and the 3x3 step is one
    NCHW convolution with a group for each image and channel.

    Args:
        attention: The layer whose parameters are taken over.
    """

    def __init__(self, attention: InLineAttention) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.q, self.k, self.v = (
            _linear(weight, bias)
            for weight, bias in zip(
                attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3), strict=True
            )
        )
        self.local_kernel = copy.deepcopy(attention.local_kernel)
        self.proj = copy.deepcopy(attention.proj)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        batch, num_tokens, channels = x_BLC.shape
        v_BLC = self.v(x_BLC)
        q_BNLD, k_BNLD, v_BNLD = (
            part.reshape(batch, num_tokens, self.num_heads, -1).permute(0, 2, 1, 3)
            for part in (self.q(x_BLC), self.k(x_BLC), v_BLC)
        )
        kv_BNDD = k_BNLD.transpose(-2, -1) @ v_BNLD * (self.scale / num_tokens)
        k_mean_BN1D, v_mean_BN1D = (part.mean(dim=2, keepdim=True) for part in (k_BNLD, v_BNLD))
        # Eq. 5 summed over the keys: scores times values, less the mean score, plus the mean.
        mean_score_BNL1 = q_BNLD @ k_mean_BN1D.transpose(-2, -1) * self.scale
        out_BNLD = q_BNLD @ kv_BNDD - mean_score_BNL1 * v_mean_BN1D + v_mean_BN1D
        out_BLC = out_BNLD.transpose(1, 2).reshape(batch, num_tokens, channels)

        kernel = self.local_kernel(x_BLC.mean(dim=1).unsqueeze(-1))
        local = F.conv2d(
            v_BLC.transpose(1, 2).reshape(1, batch * channels, *hw_shape),
            kernel.reshape(batch * channels, 1, 3, 3),
            padding=1,
            groups=batch * channels,
        )
        out_BLC = out_BLC + local.reshape(batch, channels, num_tokens).transpose(1, 2)
        return self.proj(out_BLC)


class FourProducts(nn.Module):
    """The products of tokens with C x C matrices that InLine attention cannot avoid.

    Args:
        embed_dims: Channels of the tokens.
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(3, embed_dims, embed_dims) * embed_dims**-0.5)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        value, mixing, proj = self.matrices
        v_BLC = x_BLC @ value
        statistics_BCC = x_BLC.transpose(1, 2) @ v_BLC
        return x_BLC @ mixing @ proj, statistics_BCC


class FullSoftmaxAttention(nn.Module):
    """Softmax attention of every token with every token.

    Args:
        attention: A layer whose linears are taken over.
        fused: Whether to use PyTorch's fused attention, which builds no N x N weights.
    """

    def __init__(self, attention: InLineAttention, fused: bool) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.scale = attention.scale
        self.qkv = attention.qkv
        self.proj = attention.proj
        self.fused = fused

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        q, k, v = self.qkv(x_BLC).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed_BNLD = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed_BNLD = (self.scale * q @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.proj(mixed_BNLD.transpose(1, 2).flatten(-2))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.load_state_dict(dict(weight=weight, bias=bias))
    return linear
