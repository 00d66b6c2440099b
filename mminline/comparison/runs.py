"""One run of a comparison: trained once, kept in its folder, and not run again."""

import json
import os
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from mmengine.utils import ProgressBar

# Points of a curve of losses.
LOSS_POINTS = 50


class CurveHook(Hook):
    """Keeps the scores of each evaluation, and shows how far the run is."""

    def __init__(self, show_bar: bool) -> None:
        self.show_bar = show_bar
        self.curve: list[tuple[int, dict[str, float]]] = []

    def before_train(self, runner: Runner) -> None:
        if self.show_bar:
            self.bar = ProgressBar(runner.max_iters)

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        if self.show_bar:
            self.bar.update()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        # mmseg counts in per cent, mmdet does not.
        unit = 100 if runner.cfg.get('default_scope') == 'mmseg' else 1
        scores = {name: float(value) / unit for name, value in metrics.items()}
        self.curve.append((runner.iter, scores))

    def after_train(self, runner: Runner) -> None:
        if self.show_bar:
            print()


def run_once(folder: Path, settings: dict, show_bar: bool) -> dict:
    """Train and evaluate the config in a folder; return and write its result.

    Args:
        folder: Folder with config.py; its result.json is written when all is done.
        settings: What tells this run from others, kept in the result.
        show_bar: Whether to show a progress bar.
    """
    hook = CurveHook(show_bar)
    runner = RUNNERS.build(Config.fromfile(folder / 'config.py'))
    runner.register_hook(hook)
    runner.train()
    scalars = runner.message_hub.log_scalars
    result = dict(
        settings,
        curve=hook.curve,
        losses=_thin_out(scalars['train/loss'].data[0].tolist()),
        parameters=sum(parameter.numel() for parameter in runner.model.parameters()),
        seconds=float(scalars['train/time'].data[0].sum()),
    )
    write_json(folder / 'result.json', result)
    return result


def use_one_core() -> None:
    """Keep a process that is one of several to a core of its own."""
    torch.set_num_threads(1)


def _thin_out(losses: list[float]) -> list[tuple[int, float]]:
    """Average losses over stretches of equal length, each named by its last iteration."""
    step = -(-len(losses) // LOSS_POINTS)
    stretches = (losses[start : start + step] for start in range(0, len(losses), step))
    ends = range(step, len(losses) + step, step)
    return [
        (min(end, len(losses)), sum(part) / len(part))
        for end, part in zip(ends, stretches, strict=True)
    ]


def read_result(path: Path, settings: dict) -> dict | None:
    """Return the result of a run if it is finished; raise if it was one of other settings."""
    if not path.is_file():
        return None
    result = json.loads(path.read_text())
    if {name: result.get(name) for name in settings} != settings:
        raise ValueError(
            f'{path} is of a run with another config, other evaluations, other iterations or other '
            'data: take another --out'
        )
    return result


def write_json(path: Path, content: object) -> None:
    """Write under another name first: a run whose result is there is finished."""
    partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
    partial.write_text(json.dumps(content, indent=2) + '\n')
    os.replace(partial, path)
