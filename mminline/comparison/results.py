"""Results of a comparison: means over seeds, and differences seed by seed, as a table."""

import statistics


def summarize(results: list[dict], costs: dict[str, dict]) -> list[dict]:
    """Return mean, spread and difference from the first kind, for each kind over its seeds.

    Args:
        results: Results of runs, the first kind first.
        costs: What an image costs with each kind.
    """
    rows, first = [], None
    for kind in dict.fromkeys(result['kind'] for result in results):
        runs = [result for result in results if result['kind'] == kind]
        scores = {run['seed']: run['score'] for run in runs}
        first = first or scores
        # Of equal seeds, which share the order of images: that part of the spread cancels.
        differences = [score - first[seed] for seed, score in scores.items() if seed in first]
        metric = runs[0]['metric']
        rows.append(
            {
                'kind': kind,
                'metric': metric,
                metric: statistics.mean(scores.values()),
                'deviation': _deviation(list(scores.values())),
                'difference': statistics.mean(differences),
                'difference_deviation': _deviation(differences),
                'parameters': runs[0]['parameters'],
                'seconds': statistics.mean(run['seconds'] for run in runs),
                'scores': list(scores.values()),
                'curves': [run['curve'] for run in runs],
                'losses': [run['losses'] for run in runs],
                **costs[kind],
            }
        )
    return rows


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def differs(row: dict) -> bool:
    """Whether a kind differs from the first by more than twice the error of the mean."""
    if row['difference_deviation'] is None:
        return False
    error = row['difference_deviation'] / len(row['scores']) ** 0.5
    return abs(row['difference']) > 2 * error


def print_table(rows: list[dict]) -> None:
    """Print a line for each kind; '*' marks differences that are larger than their noise."""
    metric, width = rows[0]['metric'], max(16, *(len(row['kind']) for row in rows))
    print(
        f'{"attention":{width}}  {metric:>9}    std  difference    std    parameters (M)  GMACs'
        '  ms an image  MB peak  s of training'
    )
    for row in rows:
        difference = f'{row["difference"]:+10.3f}' if row is not rows[0] else f'{"":10}'
        spread = _spread(row['difference_deviation']) if row is not rows[0] else '     '
        print(
            f'{row["kind"]:{width}}  {row[metric]:9.3f}  {_spread(row["deviation"])}'
            f'  {difference}  {spread} {"*" if differs(row) else " "}'
            f'  {row["parameters"] / 1e6:14.2f}  {row["gmacs"]:5.3g}'
            f'  {1e3 * row["image_seconds"]:11.1f}  {row["megabytes"]:7.1f}  {row["seconds"]:13.0f}'
        )
    if len(rows) > 1:
        print(f'difference: from {rows[0]["kind"]}, seed by seed; * more than two standard errors')


def _spread(value: float | None) -> str:
    return '    -' if value is None else f'{value:.3f}'
