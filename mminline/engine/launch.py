"""Runs in several processes: which launcher started them, and how they meet without a GPU."""

import contextlib
import os
import sys
from collections.abc import Iterator

import torch
from mmengine.config import Config

from ..execution.slabs import LostProcessError, spatial_parallel

# What tells the processes of a launcher apart, and how to start them.
LAUNCHERS = {
    'pytorch': ('RANK', 'torchrun --nproc_per_node GPUS PROGRAM ... --launcher pytorch'),
    'slurm': ('SLURM_PROCID', 'srun --ntasks GPUS ... python PROGRAM ... --launcher slurm'),
    'mpi': ('OMPI_COMM_WORLD_RANK', 'mpirun -n GPUS python PROGRAM ... --launcher mpi'),
}


def check_launcher(launcher: str, local_rank: int | None = None) -> None:
    """Raise a ValueError if this process was not started by the launcher that is named.

    Args:
        launcher: 'none' or one of ``LAUNCHERS``.
        local_rank: Number of the process on its machine, if the launcher passes it as an option.
    """
    if local_rank is not None:
        os.environ.setdefault('LOCAL_RANK', str(local_rank))
    if launcher != 'none':
        variable, command = LAUNCHERS[launcher]
        if variable not in os.environ:
            raise ValueError(
                f'--launcher {launcher} is for processes that it has started, and {variable} '
                f'is not set: {command}'
            )


def join_without_gpu(config: Config) -> None:
    """Let processes meet on the CPU: mmengine sees to that on GPUs only."""
    if config.launcher != 'pytorch':
        raise ValueError(f'--launcher {config.launcher} needs GPUs: without them, use torchrun.')
    torch.distributed.init_process_group('gloo')
    wrapper = dict(
        type='MMDistributedDataParallel',
        device_ids=None,
        broadcast_buffers=False,
        find_unused_parameters=config.get('find_unused_parameters', False),
    )
    if config.get('runner_type', 'Runner') == 'Runner':
        config.model_wrapper_cfg = wrapper
        return
    strategy = dict(config.get('strategy') or dict(type='DDPStrategy'))
    if not strategy['type'].endswith('FSDPStrategy'):  # which is told in `prepare_fsdp`
        config.strategy = dict(strategy, model_wrapper=wrapper)


def choose_device(device: str, launcher: str) -> str:
    """Choose the GPU of each process of a launcher: without a number, all would take the first.

    Args:
        device: Where to run; 'cuda' for a GPU of its own, other names stay.
        launcher: 'none' or one of ``LAUNCHERS``.
    """
    if launcher == 'none' or device != 'cuda':
        return device
    number, count = int(os.environ.get('LOCAL_RANK', 0)), torch.cuda.device_count()
    if number >= count:
        raise ValueError(
            f'--launcher {launcher} needs a GPU for each process, and there are {count} for at '
            f'least {number + 1} processes: start fewer, or use --device cpu.'
        )
    torch.cuda.set_device(number)  # what processes exchange goes through the current one
    return f'cuda:{number}'


@contextlib.contextmanager
def share_images(launcher: str) -> Iterator[bool]:
    """Let the processes of a launcher share each image, a slab of rows each.

    An error that a user can act on ends the program. It is named once, by the process that has it
    first: a damaged part of a file is found by the process whose rows lie there.

    Args:
        launcher: 'pytorch', or 'none' for a process that is alone.

    Yields:
        Whether this is the first process, which has the results.
    """
    if launcher == 'none':
        yield True
        return
    store, rank, count = next(torch.distributed.rendezvous('env://'))
    torch.distributed.init_process_group(store=store, rank=rank, world_size=count)
    try:
        with spatial_parallel():
            yield rank == 0
    except LostProcessError as error:
        sys.exit(str(error))
    except (OSError, ValueError) as error:
        sys.exit(str(error) if _is_first_to_fail(store) else 1)
    torch.distributed.destroy_process_group()


def _is_first_to_fail(store: torch.distributed.Store) -> bool:
    """Whether no other process has named an error: all may have the same one."""
    try:
        return store.add('mminline/errors', 1) == 1
    except RuntimeError:  # without torchrun, the first process keeps the store, and it may be gone
        return True
