"""Train detectors and segmentors on Shapes from random weights, test them, and show the result.

    make demo        # Mask R-CNN and SemanticFPN, in minutes on two cores
    make demo-all    # Cascade Mask R-CNN and UperNet too

Everything goes the way of a user: the data set is drawn to data/shapes (unless it is there), and
the methods are trained and tested by mim, from the installed wheel. The work-dir then holds

    contact_sheet.png      scenes, truth and predictions
    learning_curves.png    losses and scores over the iterations
    results.json           scores as fractions, and the seconds of each part
    mask_rcnn/ ...         checkpoints, logs and predictions of each method

As many methods are trained at a time as there are cores, each on one of them. Each demo starts
from the beginning. Results of an earlier run are kept: their folder is renamed to
work_dirs/demo.1, demo.2 and so on. What an interrupted run has left is replaced.
"""

import argparse
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import _support
from _demo_progress import Progress, clock
from _demo_runs import METHODS, MORE_METHODS, SCORES, Run

DATA = Path('data/shapes')
# Stands in a work-dir from the first moment on, so that nothing but a work-dir is ever replaced.
MARK = 'demo.log'


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--all', action='store_true', help='all four methods')
    parser.add_argument('--seed', type=int, default=0, help='of weights and batches (default: 0)')
    parser.add_argument(
        '--work-dir',
        type=Path,
        default=Path('work_dirs/demo'),
        help='folder for the results (default: work_dirs/demo)',
    )
    args = parser.parse_args(arguments)
    if args.seed < 0:
        parser.error(f'--seed has to be at least 0, got --seed {args.seed}')
    return args


def make_room(folder: Path) -> None:
    """Give the demo an empty folder, without losing results of an earlier one."""
    if folder.exists() and not folder.is_dir():
        raise _support.UserError(f'--work-dir has to be a folder, got {folder}')
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise _support.UserError(
                f'--work-dir has to be empty or of an earlier demo, got {folder}'
            )
        if (folder / 'results.json').exists():
            old = next(
                path
                for number in itertools.count(1)
                if not (path := folder.with_name(f'{folder.name}.{number}')).exists()
            )
            folder.rename(old)
            print(f'The results of the demo before are now in {old}.')
        else:
            shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def draw_data() -> None:
    from mminline.datasets import write_shapes

    try:
        write_shapes(DATA)
    except ValueError as error:
        raise _support.UserError(
            f'{error}. Move {DATA} away, or let tools/make_shapes.py --force draw it anew.'
        ) from None


def train_and_test(run: Run, seed: int, progress: Progress) -> None:
    with progress.part(f'{run.method.key}_train', f'training {run.method.title}') as report:
        settings = ['--cfg-options', f'randomness.seed={seed}']
        _mim('train', run, ['--work-dir', run.folder, *settings], report)
    with progress.part(f'{run.method.key}_test', f'testing {run.method.title}') as report:
        keep = f'test_evaluator.{run.method.prediction_option}={run.predictions}'
        arguments = ['--checkpoint', run.checkpoint, '--work-dir', run.folder / 'test']
        _mim('test', run, [*arguments, '--cfg-options', keep], report)


def _mim(verb: str, run: Run, arguments: list, report: Callable[[str], None]) -> None:
    # Isolated (-I), so that mim finds the installed package and not a folder of that name.
    command = [sys.executable, '-I', '-m', 'mim', verb, 'mminline', run.method.config]
    command += ['--gpus', '0', *arguments]
    run.folder.mkdir(exist_ok=True)
    # Models this small gain little from a second thread, and where other programs are at work,
    # threads that wait for each other make a step take ten times as long.
    settings = {'PYTHONUNBUFFERED': '1', 'OMP_NUM_THREADS': '1'}
    _support.run_logged(
        [str(word) for word in command],
        run.folder / f'{verb}.log',
        _support.clean_environment() | settings,
        report,
    )


def do_all(runs: list[Run], seed: int, progress: Progress) -> None:
    """Do as many runs at a time as there are cores, each of them on one."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        under_way = [pool.submit(train_and_test, run, seed, progress) for run in runs]
        try:
            for run in as_completed(under_way):
                run.result()
        except BaseException:
            progress.interrupt()
            pool.shutdown(cancel_futures=True)
            raise


def show_results(runs: list[Run], folder: Path) -> None:
    """Draw what was learnt."""
    from _demo_pictures import draw_contact_sheet, draw_learning_curves

    draw_contact_sheet(runs, DATA, folder / 'contact_sheet.png')
    draw_learning_curves(runs, folder / 'learning_curves.png')


def collect_results(runs: list[Run], seed: int, seconds: dict[str, float]) -> dict:
    """The scores of the first two methods by name, of others by method, and the seconds."""
    results = {}
    for run in runs:
        place = results if run.method in METHODS else results.setdefault(run.method.key, {})
        place.update(run.scores())
    return results | dict(seed=seed, seconds=seconds)


def print_table(runs: list[Run], seconds: dict[str, float]) -> None:
    names = [name for scores in SCORES.values() for name in scores]
    print(f'\n{"":20}' + ''.join(f'{name.replace("_", " "):>9}' for name in names), end='')
    print(f'{"training":>11}{"testing":>9}')
    for run in runs:
        scores = run.scores()
        cells = [f'{scores[name]:.3f}' if name in scores else '' for name in names]
        times = [clock(seconds[f'{run.method.key}_{verb}']) for verb in ('train', 'test')]
        print(f'{run.method.title:20}' + ''.join(f'{cell:>9}' for cell in cells), end='')
        print(f'{times[0]:>11}{times[1]:>9}')


def expected_seconds(runs: list[Run]) -> dict[str, float]:
    """The parts of the demo with the time that they take, about."""
    parts = {'data': 5.0}
    for run in runs:
        for verb, seconds in zip(('train', 'test'), run.method.seconds, strict=True):
            parts[f'{run.method.key}_{verb}'] = seconds
    return parts | {'pictures': 5.0}


def demonstrate(runs: list[Run], folder: Path, seed: int) -> None:
    """Do all parts and write down what came of them."""
    progress = Progress(expected_seconds(runs))
    with progress.part('data', f'drawing scenes to {DATA}'):
        draw_data()
    do_all(runs, seed, progress)
    with progress.part('pictures', 'drawing pictures'):
        show_results(runs, folder)
    total = progress.elapsed()
    seconds = {name: round(progress.seconds[name], 1) for name in progress.expected}
    seconds['total'] = round(total, 1)
    (folder / 'results.json').write_text(
        json.dumps(collect_results(runs, seed, seconds), indent=2) + '\n'
    )
    print_table(runs, seconds)
    print(f'\nAll of it took {clock(total)}. Have a look:')
    for name in ('contact_sheet.png', 'learning_curves.png', 'results.json'):
        print(f'  {folder / name}')


def main(arguments: list[str] | None = None) -> None:
    args = parse_args(arguments)
    methods = METHODS + MORE_METHODS if args.all else METHODS
    with _support.user_errors('demo'):
        args.work_dir.parent.mkdir(parents=True, exist_ok=True)
        lock = args.work_dir.with_name(f'.{args.work_dir.name}.lock')
        with _support.lock(lock, f'Another demo is at work in {args.work_dir}: waiting for it.'):
            make_room(args.work_dir)
            runs = [Run(method, args.work_dir / method.key) for method in methods]
            try:
                demonstrate(runs, args.work_dir, args.seed)
            except KeyboardInterrupt:
                raise _support.UserError(
                    'interrupted; run it again, it starts from the beginning.'
                ) from None


if __name__ == '__main__':
    main()
