"""Functions run by several processes that know each other (gloo), and their results."""

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path

import torch
import torch.distributed as dist

# A server imports once what all processes need, and forks before torch starts threads.
CONTEXT = multiprocessing.get_context('forkserver')
CONTEXT.set_forkserver_preload(['helpers.slabs', 'helpers.shared_predictions'])


def run_processes(folder: Path, count: int, function: Callable, *args: object) -> list:
    """Call ``function(rank, *args)`` in each of ``count`` processes; return what they return.

    The result of a process that was killed is None.

    Args:
        folder: Where they meet and leave their results; it has to be empty.
        count: How many processes.
        function: One of ``helpers``, so that they can import it.
        args: The rest of its arguments.
    """
    processes = [
        CONTEXT.Process(target=_work, args=(folder, rank, count, function, args), daemon=True)
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    try:
        for sentinel in [process.sentinel for process in processes]:
            wait([sentinel], timeout=600)
    finally:
        for process in processes:
            process.kill()
    errors = [path.read_text() for path in sorted(folder.glob('error*'))]
    assert not errors, '\n'.join(errors)
    paths = [folder / f'result{rank}.pth' for rank in range(count)]
    return [torch.load(path, weights_only=False) if path.exists() else None for path in paths]


def _work(folder: Path, rank: int, count: int, function: Callable, args: tuple) -> None:
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(str(folder / 'store'), count)
        # A machine under load may stand still for minutes.
        timeout = timedelta(minutes=20)
        dist.init_process_group('gloo', store=store, rank=rank, world_size=count, timeout=timeout)
        torch.save(function(rank, *args), folder / f'result{rank}.pth')
        with contextlib.suppress(RuntimeError):  # some tests end a process before
            dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        (folder / f'error{rank}.txt').write_text(f'process {rank}: {traceback.format_exc()}')
