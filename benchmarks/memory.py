"""Peak memory of one call.

On a CPU it is measured from outside, since whatever looks at single operators would change what
runs: each contender makes its call in a fresh process, and the kernel tells how far its resident
memory rose. That counts tensors, scratch memory of libraries, and what the allocator wastes.
Linux only.
"""

import ctypes
import multiprocessing
import re
import resource
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from contest import Case, Contender, Settings
from programs import CompiledInference

WARM_UP_SHAPE = (64, 64)
# Imported once; children are forks of the process that did, before it ran anything.
PRELOADED = ['mmdet.apis', 'mminline.models']


def peak_memory(contender: Contender, case: Case, settings: Settings) -> dict:
    """Measure one call.

    Returns:
        ``peak_bytes`` above what was there before, ``process_bytes`` at the peak altogether (CPU
        only) and ``call_seconds``; or ``skipped``, the reason why there is nothing to measure.
    """
    if settings.device == 'cuda':
        return _peak_of_cuda(contender, case)
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(PRELOADED)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_call_once, args=(sender, contender, case, settings.threads))
    child.start()
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
        raise RuntimeError(f'{contender.name} failed in {case.title}, see above') from None
    finally:
        child.terminate()
        child.join()


def _call_once(sender: Connection, contender: Contender, case: Case, threads: int) -> None:
    torch.set_num_threads(threads)
    program = contender.start('cpu')
    # A small call first: code and threads are not the memory of a call. A compiled model has
    # to see the real size, or its compiler would be measured.
    inputs = case.inputs(case.shape, 'cpu')
    compiled = isinstance(program, CompiledInference)
    program(*(inputs if compiled else case.inputs(WARM_UP_SHAPE, 'cpu')))
    program.model.zero_grad(set_to_none=True)
    ctypes.CDLL(None).malloc_trim(0)
    _limit_memory()
    Path('/proc/self/clear_refs').write_text('5')
    before = _read_kilobytes('/proc/self/status', 'VmRSS')
    sender.send('ready')
    start = time.perf_counter()
    try:
        program(*inputs)
    except (MemoryError, RuntimeError) as error:
        sender.send(dict(skipped=_explain(error)))
        return
    seconds = time.perf_counter() - start
    peak = _read_kilobytes('/proc/self/status', 'VmHWM')
    sender.send(
        dict(peak_bytes=1024 * (peak - before), process_bytes=1024 * peak, call_seconds=seconds)
    )


def _limit_memory() -> None:
    """Make an allocation beyond what is free fail, before the system starts to kill."""
    free = _read_kilobytes('/proc/meminfo', 'MemAvailable')
    used = _read_kilobytes('/proc/self/status', 'VmData')
    limit = int(1024 * (used + 0.9 * free))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _read_kilobytes(file: str, field: str) -> int:
    return int(re.search(rf'^{field}:\s+(\d+) kB', Path(file).read_text(), re.MULTILINE).group(1))


def _explain(error: Exception) -> str:
    """The reason why a contender is left out; other errors are raised again."""
    wanted = re.search(r'tried to allocate (\d+) bytes', str(error))
    if wanted:
        return f'does not fit in memory: asks for a tensor of {int(wanted.group(1)) / 1e9:.1f} GB'
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return 'does not fit in memory'
    raise error


def _peak_of_cuda(contender: Contender, case: Case) -> dict:
    try:
        program = contender.start('cuda')
        inputs = case.inputs(case.shape, 'cuda')
        program(*inputs)
        program.model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        program(*inputs)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError as error:
        return dict(skipped=_explain(error))
    seconds = time.perf_counter() - start
    return dict(peak_bytes=torch.cuda.max_memory_allocated() - before, call_seconds=seconds)
