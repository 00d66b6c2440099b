"""Results of a comparison: means over seeds, as a table and as a figure."""

import statistics
from pathlib import Path

from matplotlib.figure import Figure


def summarize(results: list[dict]) -> list[dict]:
    """Return mean and spread of each kind over its seeds."""
    rows = []
    for kind in dict.fromkeys(result['kind'] for result in results):
        runs = [result for result in results if result['kind'] == kind]
        scores = [result['mIoU'] for result in runs]
        rows.append(
            dict(
                kind=kind,
                mIoU=statistics.mean(scores),
                deviation=statistics.stdev(scores) if len(scores) > 1 else None,
                parameters=runs[0]['parameters'],
                seconds=statistics.mean(result['seconds'] for result in runs),
                scores=scores,
            )
        )
    return rows


def print_table(rows: list[dict]) -> None:
    """Print a line for each kind."""
    print(f'{"attention":16}  mIoU mean    std  parameters (M)  seconds of training')
    for row in rows:
        spread = '    -' if row['deviation'] is None else f'{row["deviation"]:.3f}'
        print(
            f'{row["kind"]:16}  {row["mIoU"]:9.3f}  {spread}'
            f'  {row["parameters"] / 1e6:14.2f}  {row["seconds"]:19.0f}'
        )


def plot_comparison(rows: list[dict], title: str, path: Path) -> None:
    """Draw a dot for each run, a bar for their mean."""
    figure = Figure(figsize=(1.5 + 1.1 * len(rows), 3.6), layout='constrained')
    axes = figure.subplots()
    for place, row in enumerate(rows):
        count = len(row['scores'])
        offsets = [place + 0.08 * (number - (count - 1) / 2) for number in range(count)]
        label = 'one seed' if place == 0 else None
        axes.plot(offsets, row['scores'], 'o', color='#0072B2', alpha=0.8, label=label)
        label = 'mean' if place == 0 else None
        axes.hlines(row['mIoU'], place - 0.25, place + 0.25, color='#D55E00', lw=2, label=label)
    axes.set_xticks(range(len(rows)), [row['kind'].replace('-', '\n', 1) for row in rows])
    axes.set_ylabel('mIoU on validation scenes')
    axes.set_title(title, fontsize='medium')
    axes.grid(axis='y', alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
