"""Bands on threads that do not wait for each other.

An operation that is shared among cores ends when the slowest core has done its part. Beside a busy
process that is late, and a backbone has a thousand short operations. So a band stays on one core,
from its first operation to its last, and a core that is free takes the next band.
"""

import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

# Python hands operations out one by one, which more threads would wait for.
MOST_THREADS = 8

Band = TypeVar('Band')
Result = TypeVar('Result')


def count_band_threads(device: torch.device) -> int:
    """Number of bands to run at a time: on a CPU, one for each thread of torch."""
    num_threads = torch.get_num_threads()
    if device.type != 'cpu' or num_threads > MOST_THREADS:
        return 1
    # What watches the operations of a thread does not see those of others.
    if torch.autograd._profiler_enabled() or torch._C._len_torch_function_stack():
        return 1
    # OMP_PROC_BIND ties this thread to a core, and threads that it starts would share that core.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else num_threads
    return num_threads if num_threads <= cores else 1


def cut_evenly(count: int, num_threads: int, runs_per_thread: int = 16) -> list[range]:
    """Cut a range into runs, enough of them that a slow core does not keep the others waiting."""
    num_runs = min(count, 1 if num_threads == 1 else runs_per_thread * num_threads)
    edges = [index * count // num_runs for index in range(num_runs + 1)]
    return [range(*ends) for ends in itertools.pairwise(edges)]


def cut_range(count: int, most: int, num_threads: int, fewest: int = 1) -> list[range]:
    """Cut a range into nearly equal parts, if possible as many for each thread.

    Args:
        count: Length of the range.
        most: Length of a part at the most, if that is 1 or more.
        num_threads: Number of threads.
        fewest: Length of a part at the least, which comes before the rest.
    """
    num_parts = -(-count // max(most, 1))
    num_parts = -(-num_parts // num_threads) * num_threads
    num_parts = max(min(num_parts, count // fewest), 1)
    edges = [index * count // num_parts for index in range(num_parts + 1)]
    return [range(*ends) for ends in itertools.pairwise(edges)]


def map_bands(
    function: Callable[[Band], Result], bands: Sequence[Band], num_threads: int
) -> list[Result]:
    """Call a function for each band, without gradients; results are in the order of the bands."""
    if num_threads == 1 or len(bands) == 1:
        return [function(band) for band in bands]
    return _map_in_pool(function, bands, num_threads)


def call_on_one_core(function: Callable[[], Result], num_threads: int) -> Result:
    """Call a function between two calls of ``map_bands``.

    The threads among which an operation is shared wait actively for the next one, for a few
    milliseconds, and would keep the cores from the bands that follow.
    """
    if num_threads == 1:
        return function()
    return _map_in_pool(lambda _: function(), [None], num_threads)[0]


def _map_in_pool(
    function: Callable[[Band], Result], bands: Sequence[Band], num_threads: int
) -> list[Result]:
    run = _in_modes_of_this_thread(function)
    started: list[Future[Result]] = []
    try:
        pool = _make_pool(num_threads, os.getpid())
        for band in bands:
            started.append(pool.submit(run, band))
    except RuntimeError:
        # The system allows no more threads, or Python ends: with its main thread it closes all
        # pools, though other threads may go on. This thread does the rest.
        pass
    try:
        rest = [function(band) for band in bands[len(started) :]]
        return [future.result() for future in started] + rest
    finally:
        for future in started:  # of no use after an error
            future.cancel()


@functools.lru_cache(maxsize=1)
def _make_pool(num_threads: int, process: int) -> ThreadPoolExecutor:
    """Start the threads, once for a process: a fork does not take them along."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(num_threads, 'mminline-band', _keep_to_one_core)
    # A pool starts a thread only if none is idle, so each waits until all have started.
    barrier = threading.Barrier(num_threads)
    try:
        for started in [pool.submit(barrier.wait) for _ in range(num_threads)]:
            started.result()
    except RuntimeError:
        barrier.abort()  # those that have started would wait for ever
        raise
    finally:
        # Each has set the number for itself, and for threads to come: that is undone.
        torch.set_num_threads(before)
    return pool


def _keep_to_one_core() -> None:
    """Run the operations of this thread on one core, from now on."""
    torch.set_num_threads(1)
    # The first question for the number takes over that of the process, so it is asked now.
    torch.get_num_threads()


def _in_modes_of_this_thread(function: Callable[[Band], Result]) -> Callable[[Band], Result]:
    """Take the modes along that torch keeps for each thread."""
    inference = torch.is_inference_mode_enabled()
    autocast = torch.is_autocast_enabled('cpu')
    dtype = torch.get_autocast_dtype('cpu')

    def run(band: Band) -> Result:
        # The end of the outermost `torch.autocast` throws away the weights that are cast already,
        # for all threads. So there is none here, and those inside the function are not outermost.
        torch.set_autocast_dtype('cpu', dtype)
        torch.set_autocast_enabled('cpu', autocast)
        torch.autocast_increment_nesting()
        try:
            with torch.inference_mode() if inference else torch.no_grad():
                return function(band)
        finally:
            torch.autocast_decrement_nesting()

    return run
