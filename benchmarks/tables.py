"""Markdown tables of measured cases."""

import math

# Ratios are to the first candidate, which is ours.
TIMES = ('time ratio', 'median', 'quartiles', 'min', 'rounds')
HEADER = ('', *TIMES, 'memory ratio', 'peak of call', 'peak of process', 'difference')


def case_table(case: dict) -> str:
    """Table of a case: ratios to the first candidate, times, memory, and skipped candidates."""
    candidates = case['candidates']
    rows = [HEADER, *(_row(row, candidates[0]) for row in candidates if 'skipped' not in row)]
    skipped = [row for row in candidates if 'skipped' in row]
    notes = ''.join(f'\n- {row["name"]}: left out, {row["skipped"]}.' for row in skipped)
    return f'{case["name"]}\n\n{markdown(rows)}' + (f'\n{notes}' if notes else '')


def _row(candidate: dict, first: dict) -> tuple[str, ...]:
    memory = candidate['peak_bytes'] / first['peak_bytes'] if first.get('peak_bytes') else None
    difference = candidate['difference']
    return (
        candidate['name'],
        format_ratio(candidate['ratio']),
        format_time(candidate['median']),
        ' .. '.join(map(format_time, candidate['quartiles'])),
        format_time(candidate['min']),
        str(len(candidate['seconds'])),
        format_ratio(memory),
        _memory(candidate['peak_bytes']) if 'peak_bytes' in candidate else '',
        _memory(candidate['process_bytes']) if 'process_bytes' in candidate else '',
        '' if difference is None else f'{difference:.0e}',
    )


def growth_table(cases: list[dict]) -> str:
    """Time per pixel of each candidate in each case, and its growth since the first case."""
    rows = [('ns per pixel (growth)', *(' x '.join(map(str, case['shape'])) for case in cases))]
    for candidates in zip(*(case['candidates'] for case in cases), strict=True):
        per_pixel = [
            1e9 * candidate['median'] / math.prod(case['shape'])
            for case, candidate in zip(cases, candidates, strict=True)
            if 'median' in candidate
        ]
        cells = [f'{value:.0f} ({value / per_pixel[0]:.2f})' for value in per_pixel]
        # A skipped candidate stays skipped, so missing cells are at the end.
        cells += [''] * (len(cases) - len(cells))
        rows.append((candidates[0]['name'], *cells))
    return markdown(rows)


def parts_table(cases: list[dict]) -> str:
    """Time of the parts of each model, and their shares of the whole; one table a case."""
    return '\n\n'.join(f'{case["name"]}, parts\n\n{_parts_of(case)}' for case in cases)


def _parts_of(case: dict) -> str:
    measured = [row for row in case['candidates'] if 'parts' in row]
    names = list(measured[0]['parts']) if measured else []
    rows = [('', *names, 'rest')]
    for row in measured:
        parts = [row['parts'][name] for name in names]
        parts.append(max(row['median'] - sum(parts), 0.0))
        cells = (f'{format_time(part)} ({part / row["median"]:.0%})' for part in parts)
        rows.append((row['name'], *cells))
    return markdown(rows)


def busy_table(cases: list[dict]) -> str:
    """Times on a free machine and beside a busy process, and how much longer the latter are."""
    rows = [('', 'free', 'busy', 'busy / free')]
    for free, busy in zip(*(case['candidates'] for case in cases), strict=True):
        if 'median' in free and 'median' in busy:
            ratio = format_ratio(busy['median'] / free['median'])
            times = (format_time(run['median']) for run in (free, busy))
            rows.append((free['name'], *times, ratio))
    return markdown(rows)


def comparison_table(cases: list[dict]) -> str:
    """Old and new checkout, one row a case."""
    header = ('', 'old', 'new', 'new / old', 'quartiles', 'old', 'new', 'new / old', 'difference')
    rows = [header]
    for case in cases:
        old, new = case['candidates']
        rows.append(
            (
                case['name'],
                format_time(old['median']),
                format_time(new['median']),
                f'{new["ratio"]:.3f}',
                ' .. '.join(f'{ratio:.3f}' for ratio in new['ratio_quartiles']),
                _memory(old['peak_bytes']),
                _memory(new['peak_bytes']),
                format_ratio(new['peak_bytes'] / old['peak_bytes']),
                f'{new["difference"]:.0e}',
            )
        )
    return markdown(rows)


def markdown(rows: list[tuple[str, ...]]) -> str:
    """Format rows, the first of them a header, as a table that is aligned as plain text too."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = (':' + '-' * (widths[0] - 1), *('-' * (width - 1) + ':' for width in widths[1:]))
    lines = [
        (row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:])))
        for row in (rows[0], rule, *rows[1:])
    ]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def format_ratio(value: float | None) -> str:
    return '' if value is None else f'{value:.2f}'


def format_time(seconds: float) -> str:
    return f'{seconds:.2f} s' if seconds >= 1 else f'{1e3 * seconds:.1f} ms'


def _memory(size: float) -> str:
    return f'{size / 1e6:.0f} MB'
