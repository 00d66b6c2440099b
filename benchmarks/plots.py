"""Plots of measured cases."""

import math
from pathlib import Path

from matplotlib.figure import Figure


def plot_growth(cases: list[dict], file: Path, memory: str = 'peak_bytes') -> None:
    """Time and memory over resolution, log-log: a line of slope 1 is linear in pixels.

    Args:
        cases: Measured cases.
        file: Picture.
        memory: Memory to draw: 'peak_bytes' of the call, or 'process_bytes' altogether.
    """
    figure = Figure(figsize=(11, 4.5), layout='tight')
    time_axes, memory_axes = figure.subplots(1, 2)
    pixels = [math.prod(case['shape']) for case in cases]
    panels = ((time_axes, 'median', 1, 'seconds'), (memory_axes, memory, 1e-9, 'GB'))
    for axes, key, unit, label in panels:
        for candidates in zip(*(case['candidates'] for case in cases), strict=True):
            values = [unit * row.get(key, math.nan) for row in candidates if 'skipped' not in row]
            if values:
                # A skipped candidate stays skipped: values are those of the first sizes.
                axes.loglog(pixels[: len(values)], values, 'o-', label=candidates[0]['name'])
        axes.set(xlabel='image', ylabel=label)
        axes.set_xticks(pixels, [f'{case["shape"][1]} x {case["shape"][0]}' for case in cases])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    time_axes.set_title('Time of one call')
    whose = dict(peak_bytes='one call', process_bytes='the process')[memory]
    memory_axes.set_title(f'Peak memory of {whose}')
    time_axes.legend()
    figure.savefig(file, dpi=120)


def plot_bars(cases: list[dict], file: Path) -> None:
    """Time and memory as bars, one row of panels for each case."""
    height = 0.4 + sum(0.6 + 0.3 * len(case['candidates']) for case in cases)
    figure = Figure(figsize=(11, height), layout='tight')
    panels = figure.subplots(len(cases), 2, squeeze=False)
    for case, (time_axes, memory_axes) in zip(cases, panels, strict=True):
        measured = [row for row in case['candidates'] if 'median' in row]
        names = [row['name'] for row in measured]
        bars = time_axes.barh(names, [1e3 * row['median'] for row in measured])
        ratios = ['' if row['ratio'] is None else f' {row["ratio"]:.2f}' for row in measured]
        time_axes.bar_label(bars, ratios)
        time_axes.set(title=case['name'], xlabel='ms (ratio)')
        memory_axes.barh(names, [row.get('peak_bytes', math.nan) / 1e6 for row in measured])
        memory_axes.set(xlabel='MB', yticks=[])
        for axes in (time_axes, memory_axes):
            axes.invert_yaxis()
            axes.margins(x=0.15)
    figure.savefig(file, dpi=120)
