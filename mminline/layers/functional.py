"""InLine attention as pure functions of tensors."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .statistics import full_precision, token_mean, upcast

FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    'identity': lambda x: x,
    'relu': F.relu,
    'leaky_relu': F.leaky_relu,
    # In float16 it would be infinite from 56 on.
    'exp': lambda x: torch.exp(0.2 * upcast(x)),
}
NON_NEGATIVE_FEATURE_MAPS = ('relu', 'exp')


def inline_attention(
    q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor, scale: float, valid_BNM1: Tensor | None = None
) -> Tensor:
    """Mix values by injective linear attention, in time linear in tokens.

    Query ``i`` gives value ``j`` the weight ``s_ij - mean_j(s_ij) + 1 / M`` with
    ``s_ij = scale / M * <q_i, k_j>`` (arXiv:2412.06590, Eq. 5). Summed over ``j``, that is the
    mean value plus the query times the covariance of keys and values, so the L x M weights
    are never built.

    Args:
        q_BNLD: Queries, after the feature map.
        k_BNMD: Keys, after the feature map.
        v_BNMD: Values, one for each key.
        scale: Factor on the query-key product, usually ``D ** -0.5``.
        valid_BNM1: 1 for keys that take part, 0 for padding. All take part if not given.
    """
    with full_precision(v_BNMD):
        v_mean_BN1D = token_mean(v_BNMD, valid_BNM1)
        covariance_BNDD = key_value_covariance(k_BNMD, v_BNMD, v_mean_BN1D, scale, valid_BNM1)
        return mix_by_covariance(q_BNLD, covariance_BNDD, v_mean_BN1D, v_BNMD.dtype)


def key_value_covariance(
    k_BNMD: Tensor,
    v_BNMD: Tensor,
    v_mean_BN1D: Tensor,
    scale: float,
    valid_BNM1: Tensor | None = None,
) -> Tensor:
    """Covariance of keys and values, times ``scale``: all that queries need to know of them."""
    centred_BNMD = upcast(v_BNMD) - v_mean_BN1D
    if valid_BNM1 is None:
        num_keys = k_BNMD.shape[-2]
    else:
        num_keys = upcast(valid_BNM1).sum(dim=-2, keepdim=True)
        centred_BNMD = centred_BNMD * valid_BNM1
    # Centring one factor is enough for a covariance.
    return upcast(k_BNMD).transpose(-2, -1) @ centred_BNMD * (scale / num_keys)


def mix_by_covariance(
    q_BNLD: Tensor, covariance_BNDD: Tensor, v_mean_BN1D: Tensor, dtype: torch.dtype
) -> Tensor:
    """Mix values by the statistics of ``inline_attention``; ``dtype`` is that of the values."""
    # Half precision if the queries are; those of a feature map that needs more keep it.
    out_BNLD = q_BNLD @ covariance_BNDD.to(q_BNLD.dtype)
    return out_BNLD.to(dtype) + v_mean_BN1D.to(dtype)


def linear_attention(
    q_BNLD: Tensor, k_BNMD: Tensor, v_BNMD: Tensor, valid_BNM1: Tensor | None = None
) -> Tensor:
    """Mix values by plain linear attention: weights divided by their sum, hence not injective.

    Args:
        q_BNLD: Queries, after a feature map without negative values.
        k_BNMD: Keys, after the same feature map.
        v_BNMD: Values, one for each key.
        valid_BNM1: 1 for keys that take part, 0 for padding. All take part if not given.
    """
    with full_precision(v_BNMD):
        sums = key_value_sums(k_BNMD, v_BNMD, valid_BNM1)
        return mix_by_sums(q_BNLD, *sums, v_BNMD.dtype)


def key_value_sums(
    k_BNMD: Tensor, v_BNMD: Tensor, valid_BNM1: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sums over tokens of the keys, and of the products of keys and values."""
    k_BNMD = upcast(k_BNMD) if valid_BNM1 is None else upcast(k_BNMD) * valid_BNM1
    return k_BNMD.sum(dim=-2, keepdim=True), k_BNMD.transpose(-2, -1) @ upcast(v_BNMD)


def mix_by_sums(
    q_BNLD: Tensor, k_sum_BN1D: Tensor, product_BNDD: Tensor, dtype: torch.dtype
) -> Tensor:
    """Mix values by the statistics of ``linear_attention``; ``dtype`` is that of the values."""
    q_BNLD = upcast(q_BNLD)
    divisor_BNL1 = q_BNLD @ k_sum_BN1D.transpose(-2, -1) + 1e-6
    return (q_BNLD @ product_BNDD / divisor_BNL1).to(dtype)


def folded_inline_attention(
    x_BLC: Tensor,
    x_mean_B1C: Tensor,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    num_heads: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Mix values by InLine attention with the identity map, without building queries and keys.

    Queries and keys are linear in the tokens, so all they do folds into one C x C matrix for
    each image, see ``fold_attention``. With the projection that follows, four products of the
    tokens with C x C matrices remain, and two L x C tensors less than in the baseline form.

    Args:
        x_BLC: Tokens.
        x_mean_B1C: Their mean, as ``token_mean`` gives it.
        qkv_weight: Rows of queries, keys and values, ``(3C, C)``.
        qkv_bias: The same for the biases, ``(3C,)``.
        num_heads: Heads, each of ``D = C / num_heads`` consecutive channels.
        scale: Factor on the query-key product.

    Returns:
        Mixed values and values, both ``(B, L, C)``.
    """
    v_weight, v_bias = qkv_weight.chunk(3)[2], qkv_bias.chunk(3)[2]
    v_BLC = F.linear(x_BLC, v_weight, v_bias)
    with full_precision(x_BLC):
        # Centred first: the difference of two large sums would cost digits.
        centred_BLC = upcast(x_BLC) - x_mean_B1C
        covariance_BCC = centred_BLC.transpose(1, 2) @ centred_BLC / x_BLC.shape[1]
        v_mean_B1C = F.linear(x_mean_B1C, upcast(v_weight), upcast(v_bias))
        mixing_BCC, offset_B1C = fold_attention(
            covariance_BCC, v_mean_B1C, qkv_weight, qkv_bias, num_heads, scale
        )
    x_BLC, mixing_BCC, offset_B1C = (
        part.to(v_BLC.dtype) for part in (x_BLC, mixing_BCC, offset_B1C)
    )
    return torch.baddbmm(offset_B1C, x_BLC, mixing_BCC), v_BLC


def fold_attention(
    covariance_BCC: Tensor,
    v_mean_B1C: Tensor,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    num_heads: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Fold the attention of an image into an affine map of its tokens: ``x @ mixing + offset``.

    The covariance of keys and values of head h is ``Wk_h Cov(x) Wv_h^T``, and a query is
    ``Wq_h x + bq_h``. The biases of keys and values cancel: a covariance does not see them.

    Args:
        covariance_BCC: Covariance of the channels of the tokens.
        v_mean_B1C: Mean value.
        qkv_weight: Rows of queries, keys and values, ``(3C, C)``.
        qkv_bias: The same for the biases, ``(3C,)``.
        num_heads: Heads, each of ``D = C / num_heads`` consecutive channels.
        scale: Factor on the query-key product.
    """
    q_weight_NDC, k_weight_NDC, v_weight_NDC = (
        upcast(part).unflatten(0, (num_heads, -1)) for part in qkv_weight.chunk(3)
    )
    q_bias_N1D = upcast(qkv_bias.chunk(3)[0]).unflatten(0, (num_heads, 1, -1))
    key_covariance_BNDC = (k_weight_NDC.flatten(0, 1) @ covariance_BCC).unflatten(
        1, (num_heads, -1)
    )
    kv_BNDD = scale * key_covariance_BNDC @ v_weight_NDC.transpose(1, 2)
    mixing_BNCD = q_weight_NDC.transpose(1, 2) @ kv_BNDD
    mixing_BCC = mixing_BNCD.transpose(1, 2).flatten(-2)
    offset_B1C = v_mean_B1C + (q_bias_N1D @ kv_BNDD).transpose(1, 2).flatten(-2)
    return mixing_BCC, offset_B1C


def local_residual(
    v_BLC: Tensor,
    kernel_BC33: Tensor,
    hw_shape: tuple[int, int],
    offset_B1C: Tensor | None = None,
    num_extra_tokens: int = 0,
) -> Tensor:
    """Run each image's own 3x3 depth-wise kernel over its values, with zero padding.

    Args:
        v_BLC: Values.
        kernel_BC33: One 3x3 kernel for each image and channel.
        hw_shape: Height and width of the grid.
        offset_B1C: A constant to add, which costs nothing as the bias of the convolution.
        num_extra_tokens: Tokens in front of the grid; they get nothing but the constant.
    """
    kernel_BC33 = kernel_BC33.to(v_BLC.dtype)
    # One convolution an image moves no value; many of them cost more than they save.
    one_launch = v_BLC.is_cuda or v_BLC.shape[0] > 8
    convolve = grouped_convolution if one_launch else _channels_last_convolutions
    local_BLC = convolve(v_BLC[:, num_extra_tokens:], kernel_BC33, hw_shape, offset_B1C)
    return behind_extra_tokens(local_BLC, num_extra_tokens, offset_B1C)


def behind_extra_tokens(
    grid_BLC: Tensor, num_extra_tokens: int, extra_B1C: Tensor | None = None
) -> Tensor:
    """Put tokens in front of those of a grid, zeros if no value is given for them."""
    if not num_extra_tokens:
        return grid_BLC
    if extra_B1C is None:
        return F.pad(grid_BLC, (0, 0, num_extra_tokens, 0))
    return torch.cat([extra_B1C.expand(-1, num_extra_tokens, -1), grid_BLC], dim=1)


def _channels_last_convolutions(
    v_BLC: Tensor, kernel_BC33: Tensor, hw_shape: tuple[int, int], offset_B1C: Tensor | None
) -> Tensor:
    """Run one convolution an image: tokens are channels-last maps, so no value is moved."""
    maps_BCHW = v_BLC.unflatten(1, hw_shape).permute(0, 3, 1, 2)
    offsets = [None] * len(v_BLC) if offset_B1C is None else offset_B1C.squeeze(1).unbind()
    # Split, not indexed: the backward of an index makes a whole batch of zeros for each image.
    out = [
        F.conv2d(map_1CHW, kernel_C33.unsqueeze(1), offset_C, padding=1, groups=len(kernel_C33))
        for map_1CHW, kernel_C33, offset_C in zip(
            maps_BCHW.split(1), kernel_BC33.unbind(), offsets, strict=True
        )
    ]
    out_BCHW = out[0] if len(out) == 1 else torch.cat(out)
    return out_BCHW.permute(0, 2, 3, 1).flatten(1, 2)


def grouped_convolution(
    v_BLC: Tensor,
    kernel_BC33: Tensor,
    hw_shape: tuple[int, int],
    offset_B1C: Tensor | None = None,
) -> Tensor:
    """Run one convolution for all images: one launch on a GPU, one call for many windows."""
    batch, _, channels = v_BLC.shape
    out = F.conv2d(
        v_BLC.transpose(1, 2).reshape(1, batch * channels, *hw_shape),
        kernel_BC33.flatten(0, 1).unsqueeze(1),
        None if offset_B1C is None else offset_B1C.flatten(),
        padding=1,
        groups=batch * channels,
    )
    return out.view(batch, channels, -1).transpose(1, 2).contiguous()
