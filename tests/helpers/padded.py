"""A padded batch, and a process of several that trains on one; apart, to be found by processes."""

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from helpers.tiny import build, gradients, weighted_sum
from mminline.models import InLinePVT


def padded_batch(dtype: torch.dtype = torch.float32) -> Tensor:
    """Two images of 64 x 96, one padded at the bottom, one at the right."""
    batch = torch.randn(2, 3, 64, 96, dtype=dtype, generator=torch.Generator().manual_seed(0))
    batch[0, :, 40:] = 0
    batch[1, :, :, 70:] = 0
    return batch


def batch_of(rank: int) -> Tensor:
    """One process has two sizes to run, the other has one."""
    batch = padded_batch(torch.float64)
    return batch if rank == 0 else batch[:1]


def train_in_one_of_two(rank: int, folder: str) -> None:
    """Save the gradients of one of two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        'gloo', init_method=f'file://{folder}/meeting', rank=rank, world_size=2
    )
    model = DistributedDataParallel(build(InLinePVT).double())
    # Two iterations: the second one fails if a gradient of the first is still to come.
    for _ in range(2):
        model.zero_grad()
        weighted_sum(model(batch_of(rank))).backward()
    torch.save(gradients(model.module), f'{folder}/{rank}.pth')
    torch.distributed.destroy_process_group()
