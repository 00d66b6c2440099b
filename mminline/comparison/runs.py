"""Runs of a comparison: trained once, kept in their folders, and not run again."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.utils import ProgressBar

from ..datasets import write_shapes
from .configs import make_config
from .results import plot_comparison, summarize


def compare_attention(
    base: str | Path,
    kinds: Iterable[str],
    seeds: Iterable[int],
    iterations: int,
    root: str | Path,
    level: str,
    size: int,
    out: str | Path,
) -> list[dict]:
    """Train a segmentor with each kind of attention and seed; write comparison.json and .png.

    Runs that are finished are not run again.

    Args:
        base: Config file of a segmentor with the InLine-PVT backbone, trained on Shapes.
        kinds: Kinds of attention, keys of ``KINDS``.
        seeds: Seeds of the runs of each kind.
        iterations: Budget of each run.
        root: Folder of the data, drawn if it is not there.
        level: Level of its scenes.
        size: Side of its scenes.
        out: Folder of the runs and of the results.

    Returns:
        A row for each kind, with its mean score, deviation, size and time.
    """
    out = Path(out)
    data = prepare_data(Path(root), level, size)
    seeds = list(seeds)
    results = []
    for kind in kinds:
        for seed in seeds:
            folder = out / kind / f'seed_{seed}'
            settings = dict(kind=kind, seed=seed, iterations=iterations, data=data)
            result = read_result(folder / 'result.json', settings)
            if result is None:
                print(f'{kind}, seed {seed}')
                config = make_config(base, kind, seed, iterations, root, size, folder)
                result = dict(settings, **train(config))
                write_json(folder / 'result.json', result)
            results.append(result)
    rows = summarize(results)
    write_json(out / 'comparison.json', rows)
    title = f'Semantic FPN on Shapes ({level}), {iterations} iterations'
    plot_comparison(rows, title, out / 'comparison.png')
    return rows


def prepare_data(root: Path, level: str, size: int) -> dict:
    """Draw the data unless it is there, whatever the number of scenes; return its settings."""
    record = root / 'dataset.json'
    if not record.is_file():
        write_shapes(root, size=size, level=level)
    found = json.loads(record.read_text())
    if (found['level'], found['size']) != (level, size):
        raise ValueError(
            f'root {root} holds scenes of level {found["level"]} and size {found["size"]}, not '
            f'of {level} and {size}: take another'
        )
    return found


def read_result(path: Path, settings: dict) -> dict | None:
    """Return the result of a run if it is finished; raise if it was one of other settings."""
    if not path.is_file():
        return None
    result = json.loads(path.read_text())
    if {name: result[name] for name in settings} != settings:
        raise ValueError(
            f'{path} is of a run with other iterations or other data: take another --out'
        )
    return result


def train(config: Config) -> dict:
    """Train and evaluate; return the score, the size and the seconds in iterations."""
    folder = Path(config.work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    config.dump(folder / 'config.py')
    runner = Runner.from_cfg(config)
    runner.register_hook(TrainingBar())
    runner.train()
    scalars = runner.message_hub.log_scalars
    return dict(
        mIoU=float(scalars['val/mIoU'].current()) / 100,
        parameters=sum(parameter.numel() for parameter in runner.model.parameters()),
        seconds=float(scalars['train/time'].data[0].sum()),
    )


class TrainingBar(Hook):
    """A progress bar in place of the log, which goes to the run's folder."""

    def before_train(self, runner: Runner) -> None:
        self.bar = ProgressBar(runner.max_iters)

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        self.bar.update()

    def after_train(self, runner: Runner) -> None:
        print()


def write_json(path: Path, content: object) -> None:
    """Write under another name first: a run whose result is there is finished."""
    partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
    partial.write_text(json.dumps(content, indent=2) + '\n')
    os.replace(partial, path)
