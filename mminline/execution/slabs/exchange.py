"""Exchange between processes that share a grid: sums over all slabs, and rows of neighbours.

Both have gradients. Each process has the gradient of its own loss; summed over the processes,
gradients are those of one process with the whole grid.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from .shape import Rows, SlabShape


class LostProcessError(RuntimeError):
    """A process that shares an image has ended, or does not answer."""


def sum_over_slabs(x: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Add up what the processes of a grid have; on a grid that is not cut, nothing is done."""
    if not isinstance(hw_shape, SlabShape):
        return x
    return _Sum.apply(x, hw_shape.group)


def average_over_slabs(x: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """From an average over the own tokens to the average over the tokens of all slabs."""
    if not isinstance(hw_shape, SlabShape):
        return x
    return sum_over_slabs(x * hw_shape.share, hw_shape)


def move_rows(x_BLC: Tensor, slab: SlabShape, have: Sequence[Rows], want: Sequence[Rows]) -> Tensor:
    """Exchange rows so that each process has those it wants; rows that several have are added up.

    Args:
        x_BLC: Tokens of the rows that this process has.
        slab: Shape of its slab.
        have: Rows that each process has.
        want: Rows that each process gets.
    """
    have, want = tuple(have), tuple(want)
    if have == want:
        return x_BLC
    top, bottom = have[slab.rank]
    x_BHWC = x_BLC.unflatten(1, (bottom - top, slab[1]))
    return _MoveRows.apply(x_BHWC, have, want, slab.group).flatten(1, 2)


def move_map_rows(map_BCHW: Tensor, slab: SlabShape, want: Sequence[Rows]) -> Tensor:
    """Exchange rows of a map of which each process has its slab, see ``move_rows``."""
    x_BLC = map_BCHW.permute(0, 2, 3, 1).flatten(1, 2)
    x_BLC = move_rows(x_BLC, slab, slab.rows, want)
    top, bottom = want[slab.rank]
    return x_BLC.unflatten(1, (bottom - top, slab[1])).permute(0, 3, 1, 2)


class _Sum(torch.autograd.Function):
    """Sum over processes. Each of them uses it, so its gradient is a sum over them as well."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        total = x.clone(memory_format=torch.contiguous_format)
        with named_errors(group):
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, grad):
        return _Sum.apply(grad, ctx.group), None


class _MoveRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_BHWC, have, want, group):
        ctx.have, ctx.want, ctx.group = have, want, group
        rank = dist.get_rank(group)
        top, bottom = want[rank]
        out_BHWC = x_BHWC.new_zeros(len(x_BHWC), bottom - top, *x_BHWC.shape[2:])
        operations, parts = [], []
        for other in range(len(have)):
            sent = _cut(x_BHWC, have[rank], want[other])
            place = _cut(out_BHWC, want[rank], have[other])
            if other == rank:
                parts.append((place, sent))
                continue
            if sent.shape[1]:
                send = dist.P2POp(dist.isend, sent.contiguous(), group=group, group_peer=other)
                operations.append(send)
            if place.shape[1]:
                part = torch.empty_like(place, memory_format=torch.contiguous_format)
                operations.append(dist.P2POp(dist.irecv, part, group=group, group_peer=other))
                parts.append((place, part))
        with named_errors(group):
            for request in dist.batch_isend_irecv(operations) if operations else ():
                request.wait()
        for place, part in parts:
            place += part
        return out_BHWC

    @staticmethod
    def backward(ctx, grad_BHWC):
        # A row that was copied to several processes gets the gradients of all of them.
        return _MoveRows.apply(grad_BHWC, ctx.want, ctx.have, ctx.group), None, None, None


def _cut(x_BHWC: Tensor, rows: Rows, wanted: Rows) -> Tensor:
    """View the wanted ones of the rows that a tensor has; there may be none."""
    first, last = max(rows[0], wanted[0]), min(rows[1], wanted[1])
    return x_BHWC[:, first - rows[0] : max(last, first) - rows[0]]


@contextlib.contextmanager
def named_errors(group: dist.ProcessGroup) -> Iterator[None]:
    """Say what the error of an exchange means."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(
            f'one of the {dist.get_world_size(group)} processes that share an image has ended or '
            f'does not answer, so the others cannot go on: {error}'
        ) from error
