"""Results of a comparison: means over seeds, and differences seed by seed, as a table."""

import statistics

# What runs are judged by: the first of these that their evaluator reports.
METRICS = ('mIoU', 'coco/segm_mAP', 'coco/bbox_mAP', 'pascal_voc/mAP')
# Half the width of a 95 % interval of a mean, in standard errors, for 2, 3, 4 ... values.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


def summarize(results: list[dict], costs: dict[str, dict], metric: str | None = None) -> list[dict]:
    """Return mean, spread and difference from the first kind, for each kind over its seeds.

    Args:
        results: Results of runs, the first kind first.
        costs: What an image costs with each kind.
        metric: Name of the score; None for the usual one of the task.
    """
    metric = find_metric(results[0]['curve'][-1][1], metric)
    rows, first = [], None
    for kind in dict.fromkeys(result['kind'] for result in results):
        runs = [result for result in results if result['kind'] == kind]
        curves = [[(place, scores[metric]) for place, scores in run['curve']] for run in runs]
        scores = [curve[-1][1] for curve in curves]
        first = first or scores
        # Equal seeds share the order of images: that part of the spread cancels.
        differences = [score - other for score, other in zip(scores, first, strict=True)]
        rows.append(
            {
                'kind': kind,
                'metric': metric,
                metric: statistics.mean(scores),
                'deviation': _deviation(scores),
                'difference': statistics.mean(differences),
                'difference_deviation': _deviation(differences),
                'parameters': runs[0]['parameters'],
                'seconds': statistics.mean(run['seconds'] for run in runs),
                'scores': scores,
                'curves': curves,
                'losses': [run['losses'] for run in runs],
                **costs[kind],
            }
        )
    return rows


def find_metric(scores: dict[str, float], metric: str | None) -> str:
    """Return the name of the score that runs are judged by."""
    metric = metric or next((name for name in METRICS if name in scores), None)
    if metric not in scores:
        raise ValueError(
            f'the metric has to be one of {sorted(scores)}, which the evaluator reports, '
            f'got {metric=}'
        )
    return metric


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def differs(row: dict) -> bool:
    """Whether the 95 % interval of the mean difference from the first kind leaves zero out."""
    if row['difference_deviation'] is None:
        return False
    count = len(row['scores'])
    width = STUDENT[count - 2] if count - 2 < len(STUDENT) else 2.0
    return abs(row['difference']) > width * row['difference_deviation'] / count**0.5


def print_table(rows: list[dict]) -> None:
    """Print a line for each kind; '*' marks differences that are clear."""
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
        print(f'difference: from {rows[0]["kind"]}, seed by seed; * 95 % interval without zero')


def _spread(value: float | None) -> str:
    return '    -' if value is None else f'{value:.3f}'
