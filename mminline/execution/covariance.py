"""Values of the tokens, and the covariance of their channels, without a second copy of the tokens.

All that keys do in InLine attention is in this covariance, which is symmetric: a quarter of its
products are there already, and of the two on the way back one is enough.
"""

import functools
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layers.statistics import upcast
from . import cache
from .groups import Group, unpack
from .linear import product


def values_and_covariance(
    x_BLC: Tensor, x_mean_B1C: Tensor, v_weight: Tensor, v_bias: Tensor, one_pass: bool
) -> tuple[Tensor, Tensor]:
    """Compute values, ``(B, L, C)``, and the covariance of the channels, ``(B, C, C)``.

    Args:
        x_BLC: Tokens.
        x_mean_B1C: Their mean, as ``token_mean`` gives it. It has no first derivative: sums of
            squares are smallest around the mean, so they do not change with it.
        v_weight: Rows of the values, ``(C, C)``.
        v_bias: The same for the biases, ``(C,)``.
        one_pass: Whether the product takes the bias along in one pass.
    """
    group = Group(len(x_BLC), (x_BLC.shape[1], 1))
    v_1LC, covariance_BCC = packed_values_and_covariance(
        x_BLC.flatten(0, 1).unsqueeze(0), x_mean_B1C, v_weight, v_bias, [group], one_pass
    )
    return v_1LC.view_as(x_BLC), covariance_BCC


def packed_values_and_covariance(
    x_1LC: Tensor,
    x_mean_B1C: Tensor,
    v_weight: Tensor,
    v_bias: Tensor,
    groups: Sequence[Group],
    one_pass: bool,
) -> tuple[Tensor, Tensor]:
    """Do the same for packed tokens: one product for all values, a covariance for each image."""
    return _ValuesAndCovariance.apply(x_1LC, x_mean_B1C, v_weight, v_bias, groups, one_pass)


def sum_of_products(x_BLC: Tensor, centre_B1C: Tensor) -> Tensor:
    """Sum over tokens the products of all pairs of channels, measured from a centre.

    Without a centre they would be large, and differences of large numbers cost digits.
    """
    batch, _, channels = x_BLC.shape
    half = channels // 2
    # Three quarters of the products: the upper right is the lower left.
    upper_left = upcast(x_BLC[:0]).new_zeros(batch, half, half)
    lower = upper_left.new_zeros(batch, channels - half, channels)
    for part_BLC in _split_tokens(x_BLC):
        centred_BLC = upcast(part_BLC) - centre_B1C
        centred_BCL = centred_BLC.transpose(1, 2)
        upper_left.baddbmm_(centred_BCL[:, :half], centred_BLC[..., :half])
        lower.baddbmm_(centred_BCL[:, half:], centred_BLC)
    upper_right = lower[..., :half].transpose(1, 2)
    return torch.cat([torch.cat([upper_left, upper_right], dim=2), lower], dim=1)


def _split_tokens(x_BLC: Tensor) -> tuple[Tensor, ...]:
    """Cut tokens into chunks that stay in a CPU's cache; a GPU prefers one large product."""
    on_cpu = x_BLC.device.type == 'cpu'
    chunk = max(cache.chunk_values(x_BLC) // x_BLC.shape[2], 1) if on_cpu else x_BLC.shape[1]
    return x_BLC.split(chunk, dim=1)


def _split(groups: Sequence[Group], x_1LC: Tensor, *statistics: Tensor) -> Iterator[tuple]:
    """Tokens of each group, ``(B, L, C)``, and what belongs to its images."""
    sizes = [group.batch for group in groups]
    return zip(unpack(x_1LC, groups), *(each.split(sizes) for each in statistics), strict=True)


def _plain_form(
    x_1LC: Tensor, x_mean_B1C: Tensor, v_weight: Tensor, groups: Sequence[Group]
) -> tuple[Tensor, Tensor]:
    covariances = []
    for part_BLC, mean_B1C in _split(groups, x_1LC, x_mean_B1C):
        centred_BLC = upcast(part_BLC) - mean_B1C
        covariances.append(centred_BLC.transpose(1, 2) @ centred_BLC / part_BLC.shape[1])
    return F.linear(x_1LC, v_weight.to(x_1LC.dtype)), torch.cat(covariances)


def _add_centred_product(
    grad_BLC: Tensor, x_BLC: Tensor, mean_B1C: Tensor, matrix_BCC: Tensor
) -> None:
    """Add ``(x - mean) @ matrix`` in place, without a centred copy of all tokens."""
    if upcast(x_BLC[:0]).dtype == x_BLC.dtype:
        grad_BLC.baddbmm_(x_BLC, matrix_BCC)
        grad_BLC -= mean_B1C @ matrix_BCC
        return
    # Half precision would round the product of the mean, and with it all tokens alike: an error
    # that adds up in their sum, the gradient of the bias of a norm.
    for part_BLC, grad_part_BLC in zip(_split_tokens(x_BLC), _split_tokens(grad_BLC), strict=True):
        grad_part_BLC.baddbmm_((part_BLC - mean_B1C).to(x_BLC.dtype), matrix_BCC)


class _ValuesAndCovariance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_1LC, x_mean_B1C, v_weight, v_bias, groups, one_pass):
        ctx.save_for_backward(x_1LC, x_mean_B1C, v_weight)
        ctx.groups = groups
        covariances = [
            sum_of_products(part_BLC, mean_B1C) / part_BLC.shape[1]
            for part_BLC, mean_B1C in _split(groups, x_1LC, x_mean_B1C)
        ]
        return product(x_1LC, v_weight, v_bias, one_pass), torch.cat(covariances)

    @staticmethod
    def backward(ctx, v_grad_1LC, covariance_grad_BCC):
        x_1LC, x_mean_B1C, v_weight = ctx.saved_tensors
        bias_grad = v_grad_1LC.sum(dim=(0, 1), dtype=v_weight.dtype)
        if torch.is_grad_enabled():
            # Somebody wants second derivatives, which the plain form has.
            plain_form = functools.partial(_plain_form, groups=ctx.groups)
            _, pull_back = torch.func.vjp(plain_form, x_1LC, x_mean_B1C, v_weight)
            return *pull_back((v_grad_1LC, covariance_grad_BCC)), bias_grad, None, None
        both_BCC = covariance_grad_BCC + covariance_grad_BCC.transpose(1, 2)
        x_grad_1LC = v_grad_1LC @ v_weight.to(x_1LC.dtype)
        x_grads = unpack(x_grad_1LC, ctx.groups)
        parts = _split(ctx.groups, x_1LC, x_mean_B1C, both_BCC)
        for x_grad_BLC, (x_BLC, mean_B1C, each_BCC) in zip(x_grads, parts, strict=True):
            each_BCC = (each_BCC / x_BLC.shape[1]).to(x_BLC.dtype)
            _add_centred_product(x_grad_BLC, x_BLC, mean_B1C, each_BCC)
        weight_grad = v_grad_1LC.flatten(0, 1).t() @ x_1LC.flatten(0, 1)
        return x_grad_1LC, None, weight_grad, bias_grad, None, None
