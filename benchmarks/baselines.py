"""Baseline implementations, with the weights of our layers."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mminline.layers import Block, InLineAttention


class BaselineAttention(nn.Module):
    """InLine attention written directly from the paper (arXiv:2412.06590, Eq. 5).

    Queries, keys and values are built, each head has its ``K^T V``, and the 3x3 step is one
    NCHW convolution with a group for each image and channel.

    Args:
        attention: Layer whose weights are used.
    """

    def __init__(self, attention: InLineAttention) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.q, self.k, self.v = _split_linear(attention.qkv, parts=3)
        self.local_kernel = attention.local_kernel
        self.proj = attention.proj

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        batch, num_tokens, channels = x_BLC.shape
        v_BLC = self.v(x_BLC)
        q_BNLD, k_BNLD, v_BNLD = (
            part.reshape(batch, num_tokens, self.num_heads, -1).permute(0, 2, 1, 3)
            for part in (self.q(x_BLC), self.k(x_BLC), v_BLC)
        )
        scale = q_BNLD.shape[-1] ** -0.5
        kv_BNDD = k_BNLD.transpose(-2, -1) @ v_BNLD * (scale / num_tokens)
        k_mean_BN1D, v_mean_BN1D = (part.mean(dim=2, keepdim=True) for part in (k_BNLD, v_BNLD))
        # Eq. 5 summed over the keys: scores times values, less the mean score, plus the mean.
        mean_score_BNL1 = q_BNLD @ k_mean_BN1D.transpose(-2, -1) * scale
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


class MatrixProducts(nn.Module):
    """The four products of tokens with C x C matrices that InLine attention consists of.

    Args:
        attention: Layer whose number of channels is used.
    """

    def __init__(self, attention: InLineAttention) -> None:
        super().__init__()
        channels = attention.proj.in_features
        self.matrices = nn.Parameter(torch.randn(3, channels, channels) * channels**-0.5)

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        value, mixing, proj = self.matrices
        v_BLC = x_BLC @ value
        statistics_BCC = x_BLC.transpose(1, 2) @ v_BLC
        return x_BLC @ mixing @ proj, statistics_BCC


class GlobalSoftmaxAttention(nn.Module):
    """Softmax attention over all tokens.

    Args:
        attention: Layer whose linears are used.
        fused: Whether to use PyTorch's fused attention, which builds no N x N weights.
    """

    def __init__(self, attention: InLineAttention, fused: bool) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.qkv = attention.qkv
        self.proj = attention.proj
        self.fused = fused

    def forward(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        q, k, v = self.qkv(x_BLC).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed_BNLD = F.scaled_dot_product_attention(q, k, v)
        else:
            scores_BNLL = q.shape[-1] ** -0.5 * q @ k.transpose(-2, -1)
            mixed_BNLD = scores_BNLL.softmax(dim=-1) @ v
        return self.proj(mixed_BNLD.transpose(1, 2).flatten(-2))


def use_baseline(backbone: nn.Module, attention: bool = True) -> nn.Module:
    """Replace MLPs by the sequence of their layers, and InLine attention by the baseline."""
    blocks = [module for module in backbone.modules() if isinstance(module, Block)]
    for block in blocks:
        layers = ((name, getattr(block.mlp, name)) for name in ('fc1', 'act', 'fc2', 'drop'))
        block.mlp = nn.Sequential(OrderedDict(layers))
        if attention and isinstance(block.attn, InLineAttention):
            block.attn = BaselineAttention(block.attn)
    return backbone


def _split_linear(linear: nn.Linear, parts: int) -> list[nn.Linear]:
    """Split a linear into linears of equal numbers of outputs."""
    split = []
    for weight, bias in zip(linear.weight.chunk(parts), linear.bias.chunk(parts), strict=True):
        part = nn.Linear(weight.shape[1], weight.shape[0])
        part.load_state_dict(dict(weight=weight, bias=bias))
        split.append(part)
    return split
