"""Measure a case: memory, whether results agree, and time, contender after contender in rounds.

Interleaved in one process, so that whatever else the machine does hits all of them alike.
"""

import statistics
import sys
import time
from typing import Any

import torch
from contest import Case, Contender, Settings
from memory import peak_memory
from torch import Tensor


class Disagreement(Exception):
    """Contenders with the same weights gave different results."""


def measure_case(case: Case, settings: Settings, skipped: dict[str, str]) -> dict:
    """Measure all contenders of a case.

    Args:
        case: The case.
        settings: How to measure.
        skipped: Contenders to leave out, and why. Those that drop out here are added.

    Returns:
        What the JSON file holds for a case; times in seconds, memory in bytes.
    """
    rows = measure_memory(case, settings, skipped)
    running = [contender for contender in case.contenders if contender.name not in skipped]
    programs = {contender.name: contender.start(settings.device) for contender in running}
    inputs = case.inputs(case.shape, settings.device)
    differences = check_agreement(case.title, running, programs, inputs, settings.tolerance)
    rounds = {
        name: max(min(settings.repeats, int(settings.time_limit / rows[name]['call_seconds'])), 1)
        for name in programs
    }
    times = time_interleaved(case.title, programs, inputs, rounds, settings.device)
    show_progress('')
    for name, seconds in times.items():
        rows[name] |= summarize(seconds, times.get(case.contenders[0].name))
        rows[name]['difference'] = differences.get(name)
    contenders = [dict(name=name, **row) for name, row in rows.items()]
    return dict(name=case.title, shape=list(case.shape), contenders=contenders)


def measure_memory(case: Case, settings: Settings, skipped: dict[str, str]) -> dict[str, dict]:
    """Measure the memory of all contenders, which also tells who can be run at all."""
    rows = {}
    for contender in case.contenders:
        if contender.name in skipped:
            rows[contender.name] = dict(skipped=skipped[contender.name])
            continue
        show_progress(f'{case.title}: memory of {contender.name}')
        rows[contender.name] = peak_memory(contender, case, settings)
        if 'skipped' in rows[contender.name]:
            skipped[contender.name] = rows[contender.name]['skipped']
    return rows


def check_agreement(
    title: str,
    contenders: list[Contender],
    programs: dict[str, Any],
    inputs: tuple,
    tolerance: float,
) -> dict[str, float]:
    """Compare results within each group; all programs run once, which warms them up.

    Returns:
        For each contender but the first of its group, its largest difference from that one.
    """
    references, differences = {}, {}
    for contender in contenders:
        show_progress(f'{title}: results of {contender.name}')
        results = programs[contender.name].results(*inputs)
        if contender.group is None:
            continue
        if contender.group not in references:
            references[contender.group] = contender.name, results
            continue
        reference_name, reference = references[contender.group]
        difference = largest_difference(reference, results)
        # Not `>`: a difference that is not a number is none to be content with.
        if not difference <= tolerance:
            raise Disagreement(
                f'{title}: {contender.name} and {reference_name} have to agree within '
                f'{tolerance:g} of the largest value, got {difference:.2g}'
            )
        differences[contender.name] = difference
    return differences


def largest_difference(reference: dict[str, Tensor], results: dict[str, Tensor]) -> float:
    """Largest difference of values of the same name, relative to the largest one of that name."""
    shared = [name for name in reference if name in results]
    return max(
        (
            (reference[name] - results[name]).abs().max()
            / reference[name].abs().max().clamp_min(torch.finfo(reference[name].dtype).tiny)
        ).item()
        for name in shared
    )


def time_interleaved(
    title: str, programs: dict[str, Any], inputs: tuple, rounds: dict[str, int], device: str
) -> dict[str, list[float]]:
    """Seconds of each call, in rounds that begin with another contender each time."""
    seconds = {name: [] for name in programs}
    names = list(programs)
    for index in range(max(rounds.values(), default=0)):
        show_progress(f'{title}: round {index + 1} of {max(rounds.values())}')
        start = index % len(names)
        for name in names[start:] + names[:start]:
            if index < rounds[name]:
                seconds[name].append(_time_call(programs[name], inputs, device))
    return seconds


def _time_call(program: Any, inputs: tuple, device: str) -> float:
    if device == 'cuda':
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        program(*inputs)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000
    begin = time.perf_counter()
    program(*inputs)
    return time.perf_counter() - begin


def summarize(seconds: list[float], baseline: list[float] | None) -> dict:
    """Median and spread, and the ratio to the baseline, the median of those of each round."""
    quartiles = statistics.quantiles(seconds, method='inclusive') if len(seconds) > 1 else seconds
    ratio = None
    if baseline is not None:
        ratio = statistics.median(a / b for a, b in zip(seconds, baseline, strict=False))
    return dict(
        ratio=ratio,
        median=statistics.median(seconds),
        quartiles=[quartiles[0], quartiles[-1]],
        min=min(seconds),
        seconds=seconds,
    )


def show_progress(text: str) -> None:
    """Rewrite the last line of a terminal; elsewhere print a line."""
    if sys.stderr.isatty():
        print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
