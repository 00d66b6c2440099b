"""The speed figure of the paper (arXiv:2412.06590): InLine and softmax attention side by side.

Swin-T with windows of growing side, and DeiT-T on growing images. Softmax attention is PyTorch's
fused one, in the blocks of this project, so that only the attention differs.
"""

import re
from functools import partial
from pathlib import Path

import builders
from benchmark import Candidate, Case
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from runners import Inference
from tables import format_ratio, format_time, markdown

from mminline.models import InLineDeiT, InLineSwin

# Printed on the speed figure of the paper (arXiv:2412.06590).
PRINTED = {
    ('Swin-T', 7): 'slower',
    ('Swin-T', 28): '1.9',
    ('Swin-T', 56): '3.7',
    ('DeiT-T', 224): 'no gain',
    ('DeiT-T', 640): '2.4',
    ('DeiT-T', 1024): '4.8',
}
NAMES = ('InLine', 'softmax, fused')
PANELS = {'Swin-T': 'side of the window (tokens)', 'DeiT-T': 'side of the image (px)'}


def figure_cases(
    windows: list[int], shape: tuple[int, int], sides: list[int], batch: int
) -> list[Case]:
    """Cases of both panels."""
    make_input = partial(builders.random_image, batch)
    cases = []
    for window in sorted(windows):
        inline = partial(builders.inline_backbone, InLineSwin, inline_window=window)
        softmax = partial(builders.softmax_swin, window, tuple(shape))
        name = f'Swin-T, window {window}'
        cases.append(Case(name, tuple(shape), make_input, _candidates(inline, softmax)))
    inline = partial(builders.inline_backbone, InLineDeiT)
    for side in sorted(sides):
        candidates = _candidates(inline, builders.softmax_deit)
        cases.append(Case('DeiT-T', (side, side), make_input, candidates))
    return cases


def _candidates(*builds: partial) -> list[Candidate]:
    return [Candidate(name, Inference, build) for name, build in zip(NAMES, builds, strict=True)]


def speed_table(cases: list[dict]) -> str:
    """Time of each case with InLine and with softmax attention, and how much faster InLine is."""
    rows = [('', 'InLine', 'softmax, fused', 'softmax / InLine', 'paper, RTX 3090')]
    for case in cases:
        ours, softmax = case['candidates']
        if 'median' in ours and 'median' in softmax:
            times = (format_time(ours['median']), format_time(softmax['median']))
            ratio = format_ratio(softmax['ratio'])
            rows.append((case['name'], *times, ratio, PRINTED.get(speed_point(case), '')))
    return markdown(rows)


def speed_point(case: dict) -> tuple[str, int]:
    """Panel of the speed figure that a case belongs to, and its place there."""
    model, rest = case['name'].split(', ', 1)
    window = re.match(r'window (\d+)', rest)
    return model, int(window[1]) if window else case['shape'][0]


def plot_speed_figure(cases: list[dict], file: Path) -> None:
    """Time over the window of Swin-T and over the side of the image of DeiT-T, both log-log."""
    figure = Figure(figsize=(11, 4.3), layout='tight')
    for axes, (model, label) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        _draw_panel(axes, [case for case in cases if speed_point(case)[0] == model])
        axes.set(title=model, xlabel=label)
    figure.savefig(file, dpi=120)


def _draw_panel(axes: Axes, cases: list[dict]) -> None:
    places = [speed_point(case)[1] for case in cases]
    for number, style in enumerate(('o-', 's--')):
        rows = [case['candidates'][number] for case in cases]
        points = [
            (place, 1e3 * row['median'])
            for place, row in zip(places, rows, strict=True)
            if 'median' in row
        ]
        if points:
            axes.loglog(*zip(*points, strict=True), style, label=NAMES[number])
    for case, place in zip(cases, places, strict=True):
        softmax = case['candidates'][1]
        if softmax.get('ratio'):
            axes.annotate(
                f'{softmax["ratio"]:.1f}x', (place, 1e3 * softmax['median']), (-5, 5),
                textcoords='offset points', ha='right', fontsize=9,
            )  # fmt: skip
    axes.set_xticks(places, map(str, places))
    axes.set_ylabel('ms (beside the points: softmax / InLine)')
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter('{x:g}')
    axes.margins(x=0.12, y=0.12)
    axes.grid(alpha=0.3)
    axes.legend()
