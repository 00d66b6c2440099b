"""What a run leaves behind: a JSON file, and tables in Markdown made from nothing else."""

import datetime
import importlib.metadata
import math
import os
import platform
import re
import subprocess
from pathlib import Path

import torch
from cases import BACKBONE

import mminline

PACKAGES = ('torch', 'mmengine', 'mmcv', 'mmdet', 'timm')
# Ratios are to the first contender, which is ours.
HEADER = (
    '',
    'time ratio',
    'median',
    'quartiles',
    'min',
    'rounds',
    'memory ratio',
    'peak of call',
    'peak of process',
    'difference',
)


def describe_machine(device: str) -> dict:
    """What a time means nothing without."""
    return dict(
        cpu=_cpu_model(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        load=os.getloadavg()[0],
        memory_bytes=os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'),
        gpu=torch.cuda.get_device_name() if device == 'cuda' else None,
        python=platform.python_version(),
        versions={name: _version(name) for name in PACKAGES} | {'mminline': mminline.__version__},
        date=datetime.datetime.now().astimezone().isoformat(timespec='seconds'),
        revision=_revision(),
    )


def _cpu_model() -> str:
    model = re.search(r'model name\s*: (.+)', Path('/proc/cpuinfo').read_text())
    return model.group(1) if model else platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _revision() -> str | None:
    command = ['git', 'describe', '--always', '--dirty']
    try:
        git = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return git.stdout.strip() or None


def machine_line(machine: dict) -> str:
    """The machine in a line."""
    versions = ', '.join(
        f'{name} {number}' for name, number in machine['versions'].items() if number
    )
    processor = machine['gpu'] or f'{machine["cpu"]}, {machine["threads"]} threads'
    return f'{processor}; {versions}; load {machine["load"]:.1f} at the start; {machine["date"]}'


def case_table(case: dict) -> str:
    """A case as a Markdown table: ratios to the first contender, then what they are made of."""
    contenders = case['contenders']
    rows = [HEADER, *(_row(row, contenders[0]) for row in contenders if 'skipped' not in row)]
    left_out = [row for row in contenders if 'skipped' in row]
    notes = ''.join(f'\n- {row["name"]}: left out, {row["skipped"]}.' for row in left_out)
    return f'{case["name"]}\n\n{_markdown(rows)}' + (f'\n{notes}' if notes else '')


def _row(contender: dict, first: dict) -> tuple[str, ...]:
    memory = contender['peak_bytes'] / first['peak_bytes'] if first.get('peak_bytes') else None
    difference = contender['difference']
    return (
        contender['name'],
        _ratio(contender['ratio']),
        _time(contender['median']),
        ' .. '.join(_time(seconds) for seconds in contender['quartiles']),
        _time(contender['min']),
        str(len(contender['seconds'])),
        _ratio(memory),
        _memory(contender['peak_bytes']),
        _memory(contender['process_bytes']) if 'process_bytes' in contender else '',
        '' if difference is None else f'{difference:.0e}',
    )


def growth_table(cases: list[dict]) -> str:
    """Time per pixel of each contender over the cases, and its growth since the first."""
    rows = [('ns per pixel (growth)', *(' x '.join(map(str, case['shape'])) for case in cases))]
    for contenders in zip(*(case['contenders'] for case in cases), strict=True):
        per_pixel = [
            1e9 * contender['median'] / math.prod(case['shape'])
            for case, contender in zip(cases, contenders, strict=True)
            if 'median' in contender
        ]
        cells = [f'{value:.0f} ({value / per_pixel[0]:.2f})' for value in per_pixel]
        # Who drops out stays out, so what is missing is missing at the end.
        cells += [''] * (len(cases) - len(cells))
        rows.append((contenders[0]['name'], *cells))
    return _markdown(rows)


def share_table(case: dict) -> str:
    """Share of the backbone in the time of a detector."""
    medians = {row['name']: row.get('median') for row in case['contenders']}
    rows = [('', 'share of the backbone')]
    for name, median in medians.items():
        backbone = medians.get(name + BACKBONE)
        if median is not None and backbone is not None:
            rows.append((name, f'{backbone / median:.0%}'))
    return _markdown(rows)


def summary(results: dict) -> str:
    """What a command has to say beyond its cases."""
    tables = []
    if results['command'] == 'scale':
        tables = [growth_table(results['cases'])]
    elif results['command'] == 'detector':
        tables = map(share_table, results['cases'])
    return ''.join(f'{table}\n\n' for table in tables)


def report(results: dict) -> str:
    """All that a run printed."""
    tables = ''.join(f'{case_table(case)}\n\n' for case in results['cases'])
    return f'{machine_line(results["machine"])}\n\n{tables}{summary(results)}'.rstrip()


def _ratio(value: float | None) -> str:
    return '' if value is None else f'{value:.2f}'


def _time(seconds: float) -> str:
    return f'{seconds:.2f} s' if seconds >= 1 else f'{1e3 * seconds:.1f} ms'


def _memory(size: float) -> str:
    return f'{size / 1e6:.0f} MB'


def _markdown(rows: list[tuple[str, ...]]) -> str:
    """Rows, the first of them a header, as a table that is aligned as plain text too."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = (':' + '-' * (widths[0] - 1), *('-' * (width - 1) + ':' for width in widths[1:]))
    lines = [
        (row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:])))
        for row in (rows[0], rule, *rows[1:])
    ]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
