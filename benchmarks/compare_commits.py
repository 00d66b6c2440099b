"""Compare time and memory of two checkouts of mminline.

Each checkout runs in a process of its own, and the two are timed in turns, so that other load on
the machine affects both alike. Measured are our candidates of the benchmarks layer, backbone and
train. Outputs, and in training gradients, have to agree, else the program ends with an error.
Time ratios are medians over the rounds. The results go to compare_commits.json.

    git worktree add ../old HEAD~1
    python benchmarks/compare_commits.py ../old .
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import torch

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchmark import Settings
from checkout import Checkout
from machine import machine_line
from measure import largest_difference, show_progress
from tables import comparison_table
from timing import summarize


def main(arguments: list[str]) -> None:
    args = parse(arguments)
    settings = Settings('cpu', args.threads, args.repeats, 600.0, args.tolerance)
    old, new = (Checkout(folder, settings, args.quick) for folder in (args.old, args.new))
    machine = old.description.pop('machine')
    print(f'{machine_line(machine)}\n', flush=True)
    titles = list(old.description['cases'])
    differences = [
        compare_results(title, index, old, new, args.tolerance)
        for index, title in enumerate(titles)
    ]
    cases = []
    for index, title in enumerate(titles):
        rows = measure(title, index, old, new, args.repeats)
        rows[1]['difference'] = differences[index]
        cases.append(dict(name=title, shape=old.description['cases'][title], candidates=rows))
    show_progress('')
    args.out.mkdir(parents=True, exist_ok=True)
    results = dict(
        command='compare_commits',
        settings=dataclasses.asdict(settings),
        machine=machine,
        checkouts=[old.description, new.description],
        cases=cases,
    )
    file = args.out / 'compare_commits.json'
    file.write_text(json.dumps(results, indent=1))
    print(f'{comparison_table(cases)}\n\nWritten: {file}')


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('old', type=Path, metavar='OLD_CHECKOUT')
    add('new', type=Path, metavar='NEW_CHECKOUT')
    add('--repeats', type=int, default=20, metavar='N', help='rounds (default: %(default)s)')
    add('--quick', action='store_true', help='tiny images, to see that it works')
    text = 'largest difference of results, relative to the largest value (default: %(default)g)'
    add('--tolerance', type=float, default=1e-5, metavar='T', help=text)
    text = 'threads of PyTorch (default: %(default)s)'
    add('--threads', type=int, default=torch.get_num_threads(), metavar='N', help=text)
    text = 'folder for compare_commits.json (default: %(default)s)'
    add('--out', type=Path, default=Path('work_dirs/benchmarks'), metavar='FOLDER', help=text)
    args = parser.parse_args(arguments)
    if min(args.repeats, args.threads) < 1:
        parser.error('--repeats and --threads have to be at least 1')
    return args


def compare_results(
    title: str, index: int, old: Checkout, new: Checkout, tolerance: float
) -> float:
    """Compute the results of a case, which also warms up, and return their largest difference."""
    show_progress(f'{title}: results')
    old_results, new_results = (
        {name: torch.from_numpy(array) for name, array in checkout.ask('results', index).items()}
        for checkout in (old, new)
    )
    difference = largest_difference(old_results, new_results)
    # Not `>`: NaN has to fail.
    if not difference <= tolerance:
        sys.exit(
            f'{title}: old and new have to agree within {tolerance:g} of the largest value, '
            f'got {difference:.2g}'
        )
    return difference


def measure(title: str, index: int, old: Checkout, new: Checkout, repeats: int) -> list[dict]:
    """Measure memory and time of a case in both checkouts."""
    show_progress(f'{title}: memory')
    rows = [dict(name='old', **old.ask('memory', index))]
    rows.append(dict(name='new', **new.ask('memory', index)))
    times = {old: [], new: []}
    for repeat in range(repeats):
        show_progress(f'{title}: round {repeat + 1} of {repeats}')
        for checkout in (old, new) if repeat % 2 else (new, old):
            times[checkout].append(checkout.ask('seconds', index))
    return [row | summarize(times[each], times[old]) for row, each in zip(rows, times, strict=True)]


if __name__ == '__main__':
    main(sys.argv[1:])
