"""Peak memory of one call.

On a CPU each candidate makes its call in a fresh process, and the kernel reports how far the
resident memory rose. This counts tensors, scratch memory of libraries and waste of the allocator,
and does not change what runs, as a profiler of operators would. Linux only.
"""

import ctypes
import multiprocessing
import os
import re
import resource
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from benchmark import Candidate, Case, Settings
from runners import CompiledInference

WARM_UP_SHAPE = (64, 64)
# Imported once, by the process of which each measuring process is a fork.
PRELOADED = ['mmdet.apis', 'mmseg.models', 'mminline.apis']


def peak_memory(
    candidate: Candidate, case: Case, settings: Settings, output: Path | None = None
) -> dict:
    """Measure one call.

    Args:
        candidate: The candidate.
        case: Its case.
        settings: Settings of the measurement.
        output: File for what the call returns, on a CPU.

    Returns:
        ``peak_bytes`` above what was there before, ``process_bytes`` at the peak altogether (CPU
        only) and ``call_seconds``; or ``skipped``, the reason why it was not measured.
    """
    if settings.device == 'cuda':
        return _peak_of_cuda(candidate, case)
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(PRELOADED)
    receiver, sender = context.Pipe(duplex=False)
    arguments = (sender, candidate, case, settings.threads, output)
    child = context.Process(target=_call_once, args=arguments)
    # The fork server looks for the modules to preload in the current folder first, the programs of
    # this folder do not: without this it could import another mminline than they do.
    current = os.getcwd()
    os.chdir(Path(__file__).parent)
    child.start()
    os.chdir(current)
    sender.close()
    try:
        receiver.recv()
        too_slow = dict(skipped=f'a call takes longer than {settings.time_limit:g} s')
        if not receiver.poll(settings.time_limit):
            return too_slow
        peak = receiver.recv()
        return too_slow if peak.get('call_seconds', 0) > settings.time_limit else peak
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGKILL:
            return dict(skipped='killed by the system, out of memory')
        raise RuntimeError(f'{candidate.name} failed in {case.title}, see above') from None
    finally:
        child.terminate()
        child.join()


def _call_once(
    sender: Connection, candidate: Candidate, case: Case, threads: int, output: Path | None
) -> None:
    torch.set_num_threads(threads)
    runner = candidate.start('cpu')
    # A small call first, because code and threads are not memory of the call. A compiled model
    # needs the real size, or the compiler would be measured.
    inputs = case.inputs(case.shape, 'cpu')
    compiled = isinstance(runner, CompiledInference)
    runner(*(inputs if compiled else case.inputs(WARM_UP_SHAPE, 'cpu')))
    runner.model.zero_grad(set_to_none=True)
    ctypes.CDLL(None).malloc_trim(0)
    _limit_memory()
    Path('/proc/self/clear_refs').write_text('5')
    before = read_kilobytes('/proc/self/status', 'VmRSS')
    sender.send('ready')
    start = time.perf_counter()
    try:
        result = runner(*inputs)
    except (MemoryError, RuntimeError) as error:
        sender.send(dict(skipped=_explain(error)))
        return
    seconds = time.perf_counter() - start
    peak = read_kilobytes('/proc/self/status', 'VmHWM')
    if output is not None:
        torch.save(result, output)
    sender.send(
        dict(peak_bytes=1024 * (peak - before), process_bytes=1024 * peak, call_seconds=seconds)
    )


def _limit_memory() -> None:
    """Let allocations beyond the free memory fail, before the system kills processes."""
    free = read_kilobytes('/proc/meminfo', 'MemAvailable')
    used = read_kilobytes('/proc/self/status', 'VmData')
    limit = int(1024 * (used + 0.9 * free))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def read_kilobytes(file: str, field: str) -> int:
    """Read a size from a file of /proc."""
    return int(re.search(rf'^{field}:\s+(\d+) kB', Path(file).read_text(), re.MULTILINE).group(1))


def _explain(error: Exception) -> str:
    """Reason why a candidate is skipped; other errors are raised again."""
    wanted = re.search(r'tried to allocate (\d+) bytes', str(error))
    if wanted:
        return f'does not fit in memory: asks for a tensor of {int(wanted.group(1)) / 1e9:.1f} GB'
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return 'does not fit in memory'
    raise error


def _peak_of_cuda(candidate: Candidate, case: Case) -> dict:
    try:
        runner = candidate.start('cuda')
        inputs = case.inputs(case.shape, 'cuda')
        runner(*inputs)
        runner.model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        runner(*inputs)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError as error:
        return dict(skipped=_explain(error))
    seconds = time.perf_counter() - start
    return dict(peak_bytes=torch.cuda.max_memory_allocated() - before, call_seconds=seconds)
