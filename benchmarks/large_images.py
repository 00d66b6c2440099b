"""Class maps of whole images of growing size.

A call takes minutes, so one call of each candidate in a fresh process, after a small one, gives
its time, its memory and its classes.
"""

import math
import tempfile
from functools import partial
from pathlib import Path

import builders
import torch
from benchmark import Candidate, Case, Settings
from measure import Disagreement, show_progress
from memory import peak_memory, read_kilobytes
from runners import ClassMap, ClassMapInParts, SlidingClassMap
from tables import format_time, markdown
from timing import summarize

PARTS, AT_ONCE = 'ours, in parts', 'ours, at once'
SOFTMAX, SLIDE = 'softmax PVT, at once', 'softmax PVT, slide'
# Candidates whose classes are compared with those of others, and whether they have to agree.
COMPARISONS = {PARTS: (AT_ONCE, True), SLIDE: (SOFTMAX, False)}


def large_cases(sides: list[int]) -> list[Case]:
    """Class maps of SemanticFPN with 150 classes for square images."""
    ours = partial(builders.segmentor, 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py')
    softmax = partial(builders.segmentor, 'semantic-fpn_pvt-t_40k_ade20k-512x512.py')
    candidates = [
        Candidate(PARTS, ClassMapInParts, ours),
        Candidate(AT_ONCE, ClassMap, ours),
        Candidate(SOFTMAX, ClassMap, softmax),
        Candidate(SLIDE, SlidingClassMap, softmax),
    ]
    make_input = builders.random_file
    return [Case('SemanticFPN', (side, side), make_input, candidates) for side in sorted(sides)]


class SingleCalls:
    """Measures cases one after the other, and foresees what the next size would take."""

    def __init__(self) -> None:
        self._latest = {}

    def __call__(self, case: Case, settings: Settings, skipped: dict[str, str]) -> dict:
        """Measure a case; arguments and result are those of ``measure.measure_case``."""
        rows = {}
        pixels = math.prod(case.shape)
        with tempfile.TemporaryDirectory() as folder:
            files = {each.name: Path(folder) / f'{each.name}.pth' for each in case.candidates}
            for candidate in case.candidates:
                name = candidate.name
                reason = skipped.get(name) or self._foresee(name, pixels, settings)
                show_progress(f'{case.title}: {reason or name}')
                row = dict(skipped=reason) if reason else None
                rows[name] = row or peak_memory(candidate, case, settings, files[name])
                if 'skipped' in rows[name]:
                    skipped[name] = rows[name]['skipped']
                else:
                    self._latest[name] = pixels, rows[name]
            _compare(case.title, rows, files, settings.tolerance)
        first = rows.get(PARTS, {}).get('call_seconds')
        for row in rows.values():
            if 'skipped' not in row:
                row |= summarize([row['call_seconds']], [first] if first else None)
        candidates = [dict(name=name, **row) for name, row in rows.items()]
        return dict(name=case.title, shape=list(case.shape), candidates=candidates)

    def _foresee(self, name: str, pixels: int, settings: Settings) -> str | None:
        """Say why a candidate cannot be measured: at least linear growth with the pixels."""
        if name == PARTS or name not in self._latest:
            return None
        before, row = self._latest[name]
        seconds = pixels / before * row['call_seconds']
        if seconds > settings.time_limit:
            return f'would take at least {seconds:.0f} s'
        wanted = pixels / before * row['peak_bytes']
        free = 1024 * read_kilobytes('/proc/meminfo', 'MemAvailable')
        if wanted > free:
            return f'would need at least {wanted / 1e9:.0f} GB, {free / 1e9:.0f} GB are free'
        return None


def _compare(title: str, rows: dict[str, dict], files: dict[str, Path], tolerance: float) -> None:
    """Count the pixels with another class than the reference has."""
    for row in rows.values():
        row['difference'] = None
    for name, (reference, must_agree) in COMPARISONS.items():
        pair = [files[each] for each in (name, reference) if each in files]
        if len(pair) < 2 or not all(file.exists() for file in pair):
            continue
        different = torch.ne(*map(torch.load, pair))
        count = int(different.sum())
        share = count / different.numel()
        if must_agree and share > tolerance:
            raise Disagreement(
                f'{title}: {share:.2g} of the pixels of {name} differ from {reference}'
            )
        rows[name] |= dict(difference=share, differing_pixels=count)


def large_table(cases: list[dict]) -> str:
    """Seconds, memory and differing pixels of each candidate for each size."""
    rows = [('', 'image', 'seconds', 'peak memory', 'differing pixels')]
    for case in cases:
        size = ' x '.join(map(str, case['shape']))
        for row in case['candidates']:
            if 'skipped' in row:
                rows.append((row['name'], size, row['skipped'], '', ''))
                continue
            count = row.get('differing_pixels')
            share = '' if not count else f' ({row["difference"]:.2g})'
            rows.append(
                (
                    row['name'],
                    size,
                    format_time(row['median']),
                    f'{row["process_bytes"] / 1e9:.2f} GB',
                    '' if count is None else f'{count}{share}',
                )
            )
    return markdown(rows)
