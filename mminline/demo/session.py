"""Demo from beginning to end: folder, data, training and testing, pictures, scores."""

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ..datasets import write_shapes
from .commands import DemoError, clean_environment, lock, run_logged
from .progress import Progress, clock
from .runs import METHODS, MORE_METHODS, SCORES, Run

DATA = Path('data/shapes')
# Stands in a work-dir from the first moment on, so that nothing but a work-dir is ever replaced.
MARK = 'demo.log'


def run_demo(folder: Path, seed: int = 0, all_methods: bool = False) -> None:
    """Train and test the methods, and write down what came of them.

    Args:
        folder: Folder for the results; those of an earlier demo are kept under another name.
        seed: Of weights and batches.
        all_methods: All four methods, not the first two.
    """
    methods = METHODS + MORE_METHODS if all_methods else METHODS
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock_file = folder.with_name(f'.{folder.name}.lock')
    with lock(lock_file, f'Another demo is at work in {folder}: waiting for it.'):
        prepare_folder(folder)
        runs = [Run(method, folder / method.key) for method in methods]
        progress = Progress(expected_seconds(runs))
        with progress.part('data', f'drawing scenes to {DATA}'):
            draw_data()
        run_all(runs, seed, progress)
        with progress.part('pictures', 'drawing pictures'):
            draw_pictures(runs, folder)
        report_results(runs, folder, seed, progress)


def prepare_folder(folder: Path) -> None:
    """Give the demo an empty folder, without losing results of an earlier one."""
    if folder.exists() and not folder.is_dir():
        raise DemoError(f'--work-dir has to be a folder, got {folder}')
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise DemoError(f'--work-dir has to be empty or of an earlier demo, got {folder}')
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
    try:
        write_shapes(DATA)
    except ValueError as error:
        raise DemoError(
            f'{error}. Move {DATA} away, or let tools/make_shapes.py --force draw it anew.'
        ) from None


def run_all(runs: list[Run], seed: int, progress: Progress) -> None:
    """Do as many runs at a time as there are cores, each of them on one."""
    # mim makes its folder when it is imported, and fails if another mim is faster.
    Path('~/.cache/mim').expanduser().mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(train_and_test, run, seed, progress) for run in runs]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            progress.interrupt()
            pool.shutdown(cancel_futures=True)
            raise


def train_and_test(run: Run, seed: int, progress: Progress) -> None:
    with progress.part(f'{run.method.key}_train', f'training {run.method.title}') as report:
        settings = ['--cfg-options', f'randomness.seed={seed}']
        _run_mim('train', run, ['--work-dir', run.folder, *settings], report)
    with progress.part(f'{run.method.key}_test', f'testing {run.method.title}') as report:
        keep = f'test_evaluator.{run.method.prediction_option}={run.predictions}'
        arguments = ['--checkpoint', run.checkpoint, '--work-dir', run.folder / 'test']
        _run_mim('test', run, [*arguments, '--cfg-options', keep], report)


def _run_mim(verb: str, run: Run, arguments: list, report: Callable[[str], None]) -> None:
    # Isolated (-I), so that mim finds the installed package and not a folder of that name.
    command = [sys.executable, '-I', '-m', 'mim', verb, 'mminline', run.method.config]
    command += ['--gpus', '0', *arguments]
    run.folder.mkdir(exist_ok=True)
    # Models this small gain little from a second thread, and where other programs are at work,
    # threads that wait for each other make a step take ten times as long.
    settings = {'PYTHONUNBUFFERED': '1', 'OMP_NUM_THREADS': '1'}
    run_logged(
        [str(word) for word in command],
        run.folder / f'{verb}.log',
        clean_environment() | settings,
        report,
    )


def draw_pictures(runs: list[Run], folder: Path) -> None:
    from .pictures import draw_contact_sheet, draw_learning_curves  # matplotlib takes a second

    draw_contact_sheet(runs, DATA, folder / 'contact_sheet.png')
    draw_learning_curves(runs, folder / 'learning_curves.png')


def report_results(runs: list[Run], folder: Path, seed: int, progress: Progress) -> None:
    """Write the scores and the seconds, and print them."""
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


def collect_results(runs: list[Run], seed: int, seconds: dict[str, float]) -> dict:
    """Collect the scores of the first two methods by name, of others by method, and the seconds."""
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
    """Return the parts of the demo with the time that they take, about."""
    parts = {'data': 5.0}
    for run in runs:
        for verb, seconds in zip(('train', 'test'), run.method.seconds, strict=True):
            parts[f'{run.method.key}_{verb}'] = seconds
    return parts | {'pictures': 5.0}
