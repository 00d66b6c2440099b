"""Training and testing in several processes: who started them, and how they meet without a GPU."""

import argparse
import os
import sys

import torch
from mmengine.config import Config

# What tells the processes of a launcher apart, and how to start them.
LAUNCHERS = {
    'pytorch': ('RANK', 'torchrun --nproc_per_node GPUS PROGRAM ... --launcher pytorch'),
    'slurm': ('SLURM_PROCID', 'srun --ntasks GPUS ... python PROGRAM ... --launcher slurm'),
    'mpi': ('OMPI_COMM_WORLD_RANK', 'mpirun -n GPUS python PROGRAM ... --launcher mpi'),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--launcher',
        choices=['none', *LAUNCHERS],
        default='none',
        help='who started this process, if it is one of several (default: none)',
    )
    # torch.distributed.launch passes it, under either name.
    parser.add_argument('--local-rank', '--local_rank', type=int, help=argparse.SUPPRESS)


def check_launcher(args: argparse.Namespace) -> None:
    """End the program if it was not started by the launcher that is named."""
    if args.local_rank is not None:
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    if args.launcher != 'none':
        variable, command = LAUNCHERS[args.launcher]
        if variable not in os.environ:
            sys.exit(
                f'--launcher {args.launcher} is for processes that it has started, and {variable} '
                f'is not set: {command}'
            )


def join_without_gpu(config: Config) -> None:
    """Let processes meet on the CPU: mmengine sees to that on GPUs only."""
    if config.launcher != 'pytorch':
        sys.exit(f'--launcher {config.launcher} needs GPUs: without them, use torchrun.')
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
    if strategy['type'] == 'FSDPStrategy':
        wrapper = dict(strategy.get('model_wrapper') or {}, device_id='cpu')
    config.strategy = dict(strategy, model_wrapper=wrapper)
