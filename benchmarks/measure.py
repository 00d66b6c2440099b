"""Measurement of a case: memory, then agreement of the results, then time.

Candidates are timed in turns, so that other load on the machine affects all of them alike.
"""

import dataclasses
import sys
from typing import Any

import torch
from benchmark import Candidate, Case, Settings
from memory import peak_memory
from timing import median_parts, summarize, time_call
from torch import Tensor


class Disagreement(Exception):
    """Candidates with the same weights gave different results."""


def measure_case(case: Case, settings: Settings, skipped: dict[str, str]) -> dict:
    """Measure all candidates of a case.

    Args:
        case: The case.
        settings: Settings of the measurement.
        skipped: Candidates to skip, with the reason. Candidates skipped here are added.

    Returns:
        Entry of the case in the JSON file; times in seconds, memory in bytes.
    """
    here = [each for each in case.candidates if each.device in (None, settings.device)]
    case = dataclasses.replace(case, candidates=here)
    rows = measure_memory(case, settings, skipped)
    remaining = [each for each in case.candidates if each.name not in skipped]
    runners = {each: each.start(settings.device) for each in remaining}
    inputs = case.inputs(case.shape, settings.device)
    differences = check_agreement(case.title, runners, inputs, settings.tolerance)
    rounds = {}
    for each in remaining:
        call_seconds = rows[each.name].get('call_seconds', 0.0)
        affordable = settings.time_limit / call_seconds if call_seconds else settings.repeats
        rounds[each] = max(min(settings.repeats, int(affordable)), 1)
    for runner in runners.values():
        getattr(runner, 'part_seconds', []).clear()  # of the calls that warmed up
    times = time_in_turns(case.title, runners, inputs, rounds, settings.device)
    show_progress('')
    for name, seconds in times.items():
        rows[name] |= summarize(seconds, times.get(case.candidates[0].name))
        rows[name]['difference'] = differences.get(name)
    for each, runner in runners.items():
        if parts := getattr(runner, 'part_seconds', None):
            rows[each.name]['parts'] = median_parts(parts)
    candidates = [dict(name=name, **row) for name, row in rows.items()]
    return dict(name=case.title, shape=list(case.shape), candidates=candidates)


def measure_memory(case: Case, settings: Settings, skipped: dict[str, str]) -> dict[str, dict]:
    """Measure the memory of all candidates, which also shows which of them can run."""
    rows = {}
    for candidate in case.candidates:
        if candidate.name in skipped:
            rows[candidate.name] = dict(skipped=skipped[candidate.name])
            continue
        if not settings.memory:
            rows[candidate.name] = {}
            continue
        show_progress(f'{case.title}: memory of {candidate.name}')
        rows[candidate.name] = peak_memory(candidate, case, settings)
        if 'skipped' in rows[candidate.name]:
            skipped[candidate.name] = rows[candidate.name]['skipped']
    return rows


def check_agreement(
    title: str, runners: dict[Candidate, Any], inputs: tuple, tolerance: float
) -> dict[str, float]:
    """Compare results within each group. Every runner runs once, which warms it up.

    Returns:
        For each candidate but the first of its group, its largest difference from that one.
    """
    references, differences = {}, {}
    for candidate, runner in runners.items():
        show_progress(f'{title}: results of {candidate.name}')
        if candidate.group is None:
            runner(*inputs)
            continue
        results = runner.results(*inputs)
        if candidate.group not in references:
            references[candidate.group] = candidate.name, results
            continue
        reference_name, reference = references[candidate.group]
        difference = largest_difference(reference, results)
        # Not `>`: NaN has to fail.
        if not difference <= tolerance:
            raise Disagreement(
                f'{title}: {candidate.name} and {reference_name} have to agree within '
                f'{tolerance:g} of the largest value, got {difference:.2g}'
            )
        differences[candidate.name] = difference
    return differences


def largest_difference(reference: dict[str, Tensor], results: dict[str, Tensor]) -> float:
    """Largest difference of values of the same name, relative to the largest one of that name.

    Of whole numbers, such as the classes of pixels, it is the share that differs.
    """
    differences = [
        _difference(value, results[name]) for name, value in reference.items() if name in results
    ]
    # Unlike Python's max, that of a tensor is NaN if any value is.
    return torch.stack(differences).max().item()


def _difference(value: Tensor, other: Tensor) -> Tensor:
    if not value.is_floating_point():
        return (value != other).double().mean()
    difference = (value - other).abs().max()
    return difference / value.abs().max().clamp_min(torch.finfo(value.dtype).tiny)


def time_in_turns(
    title: str,
    runners: dict[Candidate, Any],
    inputs: tuple,
    rounds: dict[Candidate, int],
    device: str,
) -> dict[str, list[float]]:
    """Seconds of each call, in rounds that begin with another candidate each time."""
    seconds = {candidate.name: [] for candidate in runners}
    order = list(runners)
    for index in range(max(rounds.values(), default=0)):
        show_progress(f'{title}: round {index + 1} of {max(rounds.values())}')
        for candidate in order:
            if index < rounds[candidate]:
                seconds[candidate.name].append(time_call(runners[candidate], inputs, device))
        order.append(order.pop(0))
    return seconds


def show_progress(text: str) -> None:
    """Rewrite the last line of a terminal; print a line elsewhere."""
    if sys.stderr.isatty():
        print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
