"""A comparison: runs of every kind and seed, costs after them, and one summary."""

import hashlib
import json
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from ..apis import read_config
from ..datasets import write_shapes
from .configs import make_config
from .costs import measure_cost
from .plots import plot_comparison, plot_curves
from .results import summarize
from .runs import read_result, run_once, use_one_core, write_json


class Shapes(NamedTuple):
    """Scenes to train on in place of a config's data, drawn if they are not there."""

    root: Path
    level: str
    size: int


def compare_attention(
    base: str | Path,
    kinds: Iterable[str],
    seeds: Iterable[int],
    iterations: int | None,
    out: str | Path,
    shapes: Shapes | None = None,
    metric: str | None = None,
    evaluations: int = 4,
    jobs: int = 1,
    cfg_options: Mapping[str, Any] | None = None,
) -> list[dict]:
    """Train a model with each kind of attention and seed; write a summary and two pictures.

    Runs that are finished are not run again.

    Args:
        base: Config file of a detector or segmentor with a backbone of this project.
        kinds: Kinds of attention, see ``kinds.parse_kind``; others are compared with the first.
        seeds: Seeds of the runs of each kind.
        iterations: Budget of each run; None for the config's own.
        out: Folder of the runs and of comparison.json, comparison.png and curves.png.
        shapes: Scenes to train on; None for the data of the config.
        metric: Name of the score; None for the usual one of the task.
        evaluations: How often the score is measured, under a budget.
        jobs: Runs at a time, one a core; 1 for one after the other on all cores.
        cfg_options: Settings of the config to change, by dotted name.

    Returns:
        A row for each kind, with its mean score, deviation, difference, size and cost.
    """
    out, kinds, seeds = Path(out), list(kinds), list(seeds)
    text = read_config(base, cfg_options).pretty_text
    settings = dict(
        iterations=iterations,
        data=shapes and prepare_data(shapes),
        config=hashlib.sha256(text.encode()).hexdigest()[:12],
    )
    root, size = (shapes.root, shapes.size) if shapes else (None, None)
    results, waiting, configs = {}, {}, {}
    for kind in kinds:
        for seed in seeds:
            folder = out / kind.replace(':', '-') / f'seed_{seed}'
            config = make_config(
                base, kind, seed, iterations, root, size, folder, evaluations, cfg_options
            )
            configs.setdefault(kind, config)
            run = dict(settings, kind=kind, seed=seed)
            results[kind, seed] = read_result(folder / 'result.json', run)
            if results[kind, seed] is None:
                folder.mkdir(parents=True, exist_ok=True)
                config.dump(folder / 'config.py')
                waiting[kind, seed] = (folder, run, metric)
    for name, result in _run_all(waiting, jobs):
        results[name] = result
    # After all trainings, so that nothing else runs while times are taken.
    costs = {kind: measure_cost(config) for kind, config in configs.items()}
    rows = summarize(list(results.values()), costs)
    write_json(out / 'comparison.json', rows)
    title = f'{Path(base).stem}{f", {shapes.level} scenes" if shapes else ""}'
    title += f', {iterations} iterations' if iterations else ''
    plot_comparison(rows, title, out / 'comparison.png')
    plot_curves(rows, title, out / 'curves.png')
    return rows


def _run_all(waiting: dict[tuple, tuple], jobs: int) -> Iterator[tuple[tuple, dict]]:
    """Run what is waiting, and tell of each run when it is finished."""
    if jobs == 1:
        for number, (name, arguments) in enumerate(waiting.items(), start=1):
            print(f'[{number}/{len(waiting)}] {name[0]}, seed {name[1]}')
            yield name, run_once(*arguments, show_bar=True)
        return
    # Spawned: a fork of a process in which torch has run can hang.
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(jobs, context, initializer=use_one_core) as pool:
        futures = {
            pool.submit(run_once, *arguments, show_bar=False): name
            for name, arguments in waiting.items()
        }
        try:
            for number, future in enumerate(as_completed(futures), start=1):
                name, result = futures[future], future.result()
                print(
                    f'[{number}/{len(waiting)}] {name[0]}, seed {name[1]}: {result["metric"]} '
                    f'{result["score"]:.3f}, {result["seconds"]:.0f} s',
                    flush=True,
                )
                yield name, result
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            raise


def prepare_data(shapes: Shapes) -> dict:
    """Draw the data unless it is there, whatever the number of scenes; return its settings."""
    record = shapes.root / 'dataset.json'
    if not record.is_file():
        write_shapes(shapes.root, size=shapes.size, level=shapes.level)
    found = json.loads(record.read_text())
    if (found['level'], found['size']) != (shapes.level, shapes.size):
        raise ValueError(
            f'root {shapes.root} holds scenes of level {found["level"]} and size {found["size"]}, '
            f'not of {shapes.level} and {shapes.size}: take another'
        )
    return found
