"""A comparison: runs of every kind and seed, costs after them, and one summary."""

import hashlib
import json
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from mmengine.config import Config

from ..apis import read_config
from ..datasets import write_shapes
from ..engine.runs import prepare_training
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
        metric: Name of the score, as the evaluator reports it; None for mIoU or mAP.
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
        evaluations=evaluations,
        data=shapes and prepare_data(shapes),
        config=hashlib.sha256(text.encode()).hexdigest()[:12],
    )
    root, size = (shapes.root, shapes.size) if shapes else (None, None)
    configs = {
        (kind, seed): make_config(
            *(base, kind, seed, iterations, root, size, _folder(out, kind, seed)),
            evaluations,
            cfg_options,
        )
        for kind in kinds
        for seed in seeds
    }
    results = _run_missing(configs, settings, jobs)
    # After all trainings, so that nothing else runs while times are taken.
    costs = {kind: measure_cost(configs[kind, seeds[0]]) for kind in kinds}
    rows = summarize(results, costs, metric)
    write_json(out / 'comparison.json', rows)
    parts = [Path(base).stem, shapes and f'{shapes.level} scenes']
    parts.append(iterations and f'{iterations} iterations')
    title = ', '.join(filter(None, parts))
    plot_comparison(rows, title, out / 'comparison.png')
    plot_curves(rows, title, out / 'curves.png')
    return rows


def _folder(out: Path, kind: str, seed: int) -> Path:
    return out / kind.replace(':', '-') / f'seed_{seed}'


def _run_missing(configs: dict[tuple, Config], settings: dict, jobs: int) -> list[dict]:
    """Return the results of all runs; those that are not there are run."""
    results, waiting = {}, {}
    for (kind, seed), config in configs.items():
        folder, run = Path(config.work_dir), dict(settings, kind=kind, seed=seed)
        results[kind, seed] = read_result(folder / 'result.json', run)
        if results[kind, seed] is None:
            prepare_training(config)
            folder.mkdir(parents=True, exist_ok=True)
            config.dump(folder / 'config.py')
            waiting[kind, seed] = (folder, run)
    results.update(_run_all(waiting, jobs))
    return list(results.values())


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
                    f'[{number}/{len(waiting)}] {name[0]}, seed {name[1]}: '
                    f'{result["seconds"]:.0f} s',
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
