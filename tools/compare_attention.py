"""Train one segmentor with several kinds of attention, and compare what they learn.

    python tools/compare_attention.py
    python tools/compare_attention.py --kinds inline softmax --seeds 0 1 --iterations 600
    python tools/compare_attention.py --level cluttered --out work_dirs/compare_cluttered

Semantic FPN on Shapes, everything the same but the attention: budget, scenes and their order for
each seed, widths and depths. The kinds are

    inline            InLine attention
    inline-no-local   without its local residual
    linear            plain linear attention (ReLU map, divided by the sum), with the local residual
    linear-no-local   plain linear attention as it is usually meant
    softmax           softmax attention, every token sees every token (mmdet's PVT backbone)
    softmax-reduced   the same with fewer keys in the first three stages, as PVT has it

Each run leaves config.py, model.pth and result.json in OUT/KIND/seed_K; the table is printed, and
written with a picture as OUT/comparison.json and OUT/comparison.png. Runs that are finished are
not run again: after an interruption, or with more seeds, start the same command once more.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

import matplotlib.pyplot as plt

from _comparison_run import KINDS, make_config, train
from mminline.datasets import LEVELS, write_shapes


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--kinds', nargs='+', choices=KINDS, default=list(KINDS), metavar='KIND',
        help='kinds of attention (default: all)',
    )  # fmt: skip
    parser.add_argument(
        '--seeds', nargs='+', type=int, default=[0, 1, 2], metavar='K',
        help='one run a kind for each (default: 0 1 2)',
    )  # fmt: skip
    parser.add_argument(
        '--iterations', type=int, default=600, help='of 8 scenes, for each run (default: 600)'
    )
    parser.add_argument(
        '--level', choices=LEVELS, default='plain', help='of the scenes (default: plain)'
    )
    parser.add_argument(
        '--size', type=int, default=64, help='side of a scene in pixels (default: 64)'
    )
    parser.add_argument(
        '--root', type=Path,
        help='folder of the data, drawn if it is not there (default: data/shapes-LEVEL-SIZE)',
    )  # fmt: skip
    parser.add_argument(
        '--out', type=Path, default=Path('work_dirs/compare_attention'),
        help='folder of the runs (default: work_dirs/compare_attention)',
    )  # fmt: skip
    args = parser.parse_args()
    if args.iterations < 2:
        parser.error(f'--iterations has to be at least 2, got {args.iterations}')
    if args.root is None:
        args.root = Path(f'data/shapes-{args.level}-{args.size}')
    return args


def prepare_data(root: Path, level: str, size: int) -> dict:
    """Draw the data unless it is there, whatever the number of scenes; return its settings."""
    record = root / 'dataset.json'
    if not record.is_file():
        write_shapes(root, size=size, level=level)
    found = json.loads(record.read_text())
    if (found['level'], found['size']) != (level, size):
        raise ValueError(
            f'--root {root} holds scenes of level {found["level"]} and size {found["size"]}, not '
            f'of {level} and {size}: take another'
        )
    return found


def run(kind: str, seed: int, args: argparse.Namespace, data: dict) -> dict:
    """The result of a run, from its file if it is finished."""
    folder = args.out / kind / f'seed_{seed}'
    path = folder / 'result.json'
    settings = dict(kind=kind, seed=seed, iterations=args.iterations, data=data)
    if path.is_file():
        result = json.loads(path.read_text())
        if {name: result[name] for name in settings} != settings:
            raise ValueError(
                f'{path} is of a run with other iterations or other data: take another --out'
            )
        return result
    print(f'{kind}, seed {seed}')
    config = make_config(kind, seed, args.iterations, args.root, args.size, folder)
    result = dict(settings, **train(config))
    write_json(path, result)
    return result


def write_json(path: Path, content: object) -> None:
    """Write under another name first: a run whose result is there is finished."""
    partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
    partial.write_text(json.dumps(content, indent=2) + '\n')
    os.replace(partial, path)


def summarize(results: list[dict]) -> list[dict]:
    """Mean and spread of each kind over its seeds."""
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
    print(f'{"attention":16}  mIoU mean    std  parameters (M)  seconds of training')
    for row in rows:
        spread = '    -' if row['deviation'] is None else f'{row["deviation"]:.3f}'
        print(
            f'{row["kind"]:16}  {row["mIoU"]:9.3f}  {spread}'
            f'  {row["parameters"] / 1e6:14.2f}  {row["seconds"]:19.0f}'
        )


def plot(rows: list[dict], title: str, path: Path) -> None:
    """A dot for each run, a bar for their mean."""
    figure, axes = plt.subplots(figsize=(1.5 + 1.1 * len(rows), 3.6), layout='constrained')
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
    plt.close(figure)


def main() -> None:
    args = parse_args()
    try:
        data = prepare_data(args.root, args.level, args.size)
        results = [run(kind, seed, args, data) for kind in args.kinds for seed in args.seeds]
    except ValueError as error:
        sys.exit(f'compare_attention: {error}')
    except KeyboardInterrupt:
        sys.exit('\ncompare_attention: interrupted; start it again, finished runs are kept')
    rows = summarize(results)
    print_table(rows)
    write_json(args.out / 'comparison.json', rows)
    title = f'Semantic FPN on Shapes ({args.level}), {args.iterations} iterations'
    plot(rows, title, args.out / 'comparison.png')
    print(f'wrote {args.out / "comparison.json"} and {args.out / "comparison.png"}')


if __name__ == '__main__':
    main()
