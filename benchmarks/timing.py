"""Time of one call, and statistics over repeated calls."""

import statistics
import time
from collections.abc import Callable

import torch


def time_call(function: Callable, inputs: tuple, device: str = 'cpu') -> float:
    """Seconds of one call."""
    if device == 'cuda':
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function(*inputs)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000
    start = time.perf_counter()
    function(*inputs)
    return time.perf_counter() - start


def summarize(seconds: list[float], reference: list[float] | None) -> dict:
    """Median and spread of times, and of their ratios to a reference in the same rounds."""
    ratios = [a / b for a, b in zip(seconds, reference or (), strict=False)]
    return dict(
        ratio=statistics.median(ratios) if ratios else None,
        ratio_quartiles=_quartiles(ratios),
        median=statistics.median(seconds),
        quartiles=_quartiles(seconds),
        min=min(seconds),
        seconds=seconds,
    )


def median_parts(calls: list[dict[str, float]]) -> dict[str, float]:
    """Median seconds of each part over the calls."""
    return {name: statistics.median(call[name] for call in calls) for name in calls[0]}


def _quartiles(values: list[float]) -> list[float]:
    """First and third quartile; a single value is both."""
    if len(values) < 2:
        return values * 2
    first, _, third = statistics.quantiles(values, method='inclusive')
    return [first, third]
