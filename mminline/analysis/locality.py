"""Locality: the share of the attention that stays on the 3x3 neighbourhood of the query.

InLine attention has negative weights, which take part in the output as much as positive ones. So
a share is one of absolute weights; where no weight is negative that is the plain sum.

The local residual adds its kernel to the weights of the nine neighbours, another one in each
channel. With it counted in, the weights of channel c are ``weight + kernel_c``: the share is taken
in each channel and then averaged.
"""

from typing import NamedTuple

from torch import Tensor

from .explicit import CHUNK_WEIGHTS, ExplicitAttention


class Locality(NamedTuple):
    """Shares of a layer on one image, averaged over queries and heads."""

    attention: float  # of the attention alone
    with_residual: float | None  # with the local residual; None for a layer without
    uniform: float  # that equal weights on all keys would have: 9/N inside a map of N keys


def measure_locality(attention: ExplicitAttention) -> Locality:
    """Measure the share of absolute weight on the 3x3 keys around each query.

    Queries at a border have fewer neighbours, and so has the uniform level. Where keys are fewer
    than queries, as in PVT, the neighbourhood is 3x3 keys, which cover more than 3x3 tokens.
    """
    sums = dict.fromkeys(Locality._fields, 0.0)
    num_queries = num_uniform = 0
    # With the residual there are nine numbers a channel: more than weights where keys are few.
    for groups, rows in attention.chunks(CHUNK_WEIGHTS // 8):
        weights_BNLM = attention.weights(groups, rows)
        index_LK, seen_BLK = attention.neighbours(groups, rows)
        index_BNLK = index_LK.expand(*weights_BNLM.shape[:2], -1, -1)
        near_BNLK = weights_BNLM.gather(-1, index_BNLK) * seen_BLK.unsqueeze(1)
        near_BNL = near_BNLK.abs().sum(dim=-1)
        far_BNL = weights_BNLM.abs().sum(dim=-1) - near_BNL
        is_token_BL = attention.cell_BL[groups][:, rows] >= 0
        # A query with no positive channel has no weights at all in plain linear attention.
        counts_BNL = is_token_BL.unsqueeze(1) & (near_BNL + far_BNL > 0)
        num_queries += int(counts_BNL.sum())
        sums['attention'] += _share(near_BNL, far_BNL)[counts_BNL].sum().item()
        if attention.kernel_BC33 is not None:
            share_BNL = _share_with_residual(attention, groups, near_BNLK, far_BNL, seen_BLK)
            sums['with_residual'] += share_BNL[counts_BNL].sum().item()
        uniform_BL = seen_BLK.sum(dim=-1) / attention.visible(groups, rows).sum(dim=-1)
        sums['uniform'] += uniform_BL[is_token_BL].sum().item()
        num_uniform += int(is_token_BL.sum())
    return Locality(
        sums['attention'] / max(num_queries, 1),
        sums['with_residual'] / max(num_queries, 1) if attention.kernel_BC33 is not None else None,
        sums['uniform'] / num_uniform,
    )


def _share(near: Tensor, far: Tensor) -> Tensor:
    return near / (near + far)


def _share_with_residual(
    attention: ExplicitAttention,
    groups: slice,
    near_BNLK: Tensor,
    far_BNL: Tensor,
    seen_BLK: Tensor,
) -> Tensor:
    """Shares with the kernel of each channel added to the weights, averaged over channels."""
    kernel_BNDK = attention.kernel_BC33[groups].flatten(2).unflatten(1, (near_BNLK.shape[1], -1))
    kernel_BN1DK = kernel_BNDK.unsqueeze(2) * seen_BLK[:, None, :, None]
    near_BNLD = (near_BNLK.unsqueeze(3) + kernel_BN1DK).abs().sum(dim=-1)
    return _share(near_BNLD, far_BNL.unsqueeze(-1)).mean(dim=-1)
