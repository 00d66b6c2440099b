"""Locality: the share of the attention that stays on the 3x3 neighbourhood of the query.

InLine attention has negative weights, which take part in the output as much as positive ones. So
a share is one of absolute weights; where no weight is negative that is the plain sum.

The local residual adds its kernel to the weights of the nine neighbours, another one in each
channel. With it counted in, the weights of channel c are ``weight + kernel_c``: the share is taken
in each channel and then averaged.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..layers.attention.weights import CHUNK_WEIGHTS, AttentionWeights

MAX_QUERIES = 4096


class Locality(NamedTuple):
    """Shares of a layer on one image, averaged over queries and heads."""

    attention: float  # of the attention alone
    with_residual: float | None  # with the local residual; None for a layer without
    uniform: float  # that equal weights on all keys would have: 9/N inside a map of N keys
    queries: int  # that were looked at


def measure_locality(
    attention: AttentionWeights,
    max_queries: int = MAX_QUERIES,
    generator: torch.Generator | None = None,
) -> Locality:
    """Measure the share of absolute weight on the 3x3 keys around each query.

    Queries at a border have fewer neighbours, and so has the uniform level. Where keys are fewer
    than queries, as in PVT, the neighbourhood is 3x3 keys, which cover more than 3x3 tokens.

    Args:
        attention: The attention.
        max_queries: Of a map or window with more queries, as many random ones are looked at.
        generator: Source of that choice.
    """
    num_rows, rows = attention.q_BNLD.shape[2], None
    if num_rows > max_queries:
        rows = torch.randperm(num_rows, generator=generator)[:max_queries]
        rows = rows.to(attention.q_BNLD.device)
    shares = {'attention': [], 'with_residual': [], 'uniform': []}
    # With the residual there are nine numbers a channel: more than weights where keys are few.
    for groups, some in attention.chunks(CHUNK_WEIGHTS // 8, rows):
        for name, values in _measure_chunk(attention, groups, some).items():
            shares[name].append(values)
    means = {
        name: torch.cat(values).double().mean().item() if values else None
        for name, values in shares.items()
    }
    return Locality(**means, queries=sum(map(len, shares['uniform'])))


def _measure_chunk(
    attention: AttentionWeights, groups: slice, rows: slice | Tensor
) -> dict[str, Tensor]:
    """Shares of every query of a chunk, and of every head but for the uniform level."""
    weights_BNLM = attention.weights(groups, rows)
    index_LK, seen_BLK = attention.neighbours(groups, rows)
    index_BNLK = index_LK.expand(*weights_BNLM.shape[:2], -1, -1)
    near_BNLK = weights_BNLM.gather(-1, index_BNLK) * seen_BLK.unsqueeze(1)
    near_BNL = near_BNLK.abs().sum(dim=-1)
    far_BNL = weights_BNLM.abs().sum(dim=-1) - near_BNL
    is_token_BL = attention.cell_BL[groups][:, rows] >= 0
    # A query with no positive channel has no weights at all in plain linear attention.
    counts_BNL = is_token_BL.unsqueeze(1) & (near_BNL + far_BNL > 0)
    uniform_BL = seen_BLK.sum(dim=-1) / attention.visible(groups, rows).sum(dim=-1)
    shares = dict(attention=_share(near_BNL, far_BNL)[counts_BNL], uniform=uniform_BL[is_token_BL])
    if attention.kernel_BC33 is not None:
        share_BNL = _share_with_residual(attention, groups, near_BNLK, far_BNL, seen_BLK)
        shares['with_residual'] = share_BNL[counts_BNL]
    return shares


def _share(near: Tensor, far: Tensor) -> Tensor:
    return near / (near + far)


def _share_with_residual(
    attention: AttentionWeights,
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
