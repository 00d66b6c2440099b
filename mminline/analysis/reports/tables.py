"""Rows of numbers: grouped, printed, saved."""

import csv
import json
from pathlib import Path


def group_rows(rows: list[dict], *keys: str) -> dict[tuple, list[dict]]:
    """Collect rows that agree in some columns."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print rows in columns as wide as their content."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        print('  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def save_rows(stem: Path, rows: list[dict], **summary: object) -> None:
    """Write all rows as CSV, and what follows from them as JSON."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with open(stem.with_suffix('.csv'), 'w', newline='') as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    # JSON has no word for what is not a number.
    text = json.dumps(summary, indent=2).replace('NaN', 'null')
    stem.with_suffix('.json').write_text(text + '\n')
    print(f'Figure and numbers are in {stem}.png, .csv and .json.')
