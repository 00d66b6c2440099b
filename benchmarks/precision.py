"""Measure what bfloat16 costs in accuracy, and how training in it compares with float32.

    python benchmarks/precision.py scores CONFIG CHECKPOINT [CONFIG CHECKPOINT ...]
    python benchmarks/precision.py losses CONFIG --steps 60 --batch 4 --out work_dirs/precision

`scores` tests each checkpoint in each precision, and in float32 with neck and heads in their
plain form too. `losses` trains the model of a config on its training data in each precision, from
the same random weights and with the same batches, and writes the losses and the seconds of a step
to losses.json, and both curves to losses.png.
"""

import argparse
import copy
import itertools
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner, set_random_seed

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from machine import describe_machine, machine_line
from tables import markdown

from mminline.apis import init_model
from mminline.engine.config import load_run_config
from mminline.engine.runs import evaluate, prepare_test

SCORES = ('coco/bbox_mAP', 'coco/segm_mAP', 'mIoU')
# Name, precision, and the way in which everything runs.
FORMS = (
    ('float32, plain', 'float32', 'plain'),
    ('float32', 'float32', 'auto'),
    ('bfloat16', 'bfloat16', 'auto'),
)
WRAPPERS = dict(float32='OptimWrapper', bfloat16='mminline.BFloat16OptimWrapper')


def main() -> None:
    args = parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    machine = describe_machine('cpu')
    print(machine_line(machine))
    if args.command == 'scores':
        if len(args.models) % 2:
            sys.exit('scores needs pairs of CONFIG and CHECKPOINT')
        pairs = zip(args.models[::2], args.models[1::2], strict=True)
        results = {config: test(config, checkpoint, args.out) for config, checkpoint in pairs}
        print(score_table(results))
    else:
        config = load_run_config(args.config)
        if args.batch:
            config.train_dataloader.batch_size = args.batch
        results = {word: train(config, kind, args.steps) for word, kind in WRAPPERS.items()}
        title = f'{Path(args.config).stem}, batches of {config.train_dataloader.batch_size}'
        plot(results, title, args.out / 'losses.png')
        print(loss_table(results))
    text = json.dumps(dict(machine=machine, results=results), indent=1)
    (args.out / f'{args.command}.json').write_text(text + '\n')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')
    scores = commands.add_parser('scores', help='AP or mIoU in each precision')
    scores.add_argument('models', nargs='+', metavar='CONFIG CHECKPOINT')
    losses = commands.add_parser('losses', help='loss curves in each precision')
    losses.add_argument('config')
    losses.add_argument('--steps', type=int, default=60, help='(default: %(default)s)')
    losses.add_argument('--batch', type=int, help="images of a step, if not the config's number")
    for command in (scores, losses):
        command.add_argument('--out', type=Path, default=Path('work_dirs/precision'))
    return parser.parse_args()


def test(path: str, checkpoint: str, out: Path) -> dict[str, dict[str, float]]:
    """Scores of a checkpoint in each form."""
    scores = {}
    for name, precision, execution in FORMS:
        config = load_run_config(path, work_dir=str(out / Path(path).stem))
        # mmengine keeps one of each name.
        config.experiment_name = config.visualizer.name = f'{Path(path).stem}, {name}'
        os.environ['MMINLINE_EXECUTION'] = execution
        prepare_test(config, checkpoint, precision)
        found = evaluate(config, precision)
        scores[name] = {key: float(found[key]) for key in SCORES if key in found}
    return scores


def train(config: Config, wrapper: str, steps: int) -> dict[str, list[float] | float]:
    """Losses of a training, and seconds of a step."""
    torch.manual_seed(0)
    model = init_model(config, device='cpu', fast=False).train()
    settings = dict(copy.deepcopy(config.optim_wrapper), type=wrapper)
    optim_wrapper = build_optim_wrapper(model, settings)
    losses, seconds = [], []
    for step, data in enumerate(make_batches(config, steps)):
        start = time.perf_counter()
        losses.append(model.train_step(data, optim_wrapper)['loss'].item())
        seconds.append(time.perf_counter() - start)
        print(f'\r{wrapper}: step {step + 1} of {steps}', end='', file=sys.stderr)
    print(file=sys.stderr)
    return dict(losses=losses, seconds=statistics.median(seconds))


def make_batches(config: Config, steps: int) -> Iterator[dict]:
    """Batches of the training data, in the same order with the same changes at each call."""
    settings = dict(config.train_dataloader, num_workers=0, persistent_workers=False)
    loader = Runner.build_dataloader(copy.deepcopy(settings), seed=0)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step in range(steps):
        # Images are changed at random, and models draw regions at random, how many may depend on
        # the precision. So each step has its own seed.
        set_random_seed(step)
        yield next(batches)


def score_table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """One row a config and score, one column a form."""
    rows = [('', *(name for name, *_ in FORMS))]
    for path, scores in results.items():
        for key in next(iter(scores.values())):
            values = (f'{scores[name][key]:.4g}' for name, *_ in FORMS)
            rows.append((f'{Path(path).stem}, {re.sub(".*/", "", key)}', *values))
    return markdown(rows)


def loss_table(results: dict[str, dict]) -> str:
    """Losses along the way, and the time of a step."""
    steps = len(next(iter(results.values()))['losses'])
    shown = sorted({0, steps // 4, steps // 2, 3 * steps // 4, steps - 1})
    rows = [('', *(f'step {step + 1}' for step in shown), 'time of a step')]
    for word, result in results.items():
        losses = (f'{result["losses"][step]:.3f}' for step in shown)
        rows.append((word, *losses, f'{result["seconds"]:.2f} s'))
    return markdown(rows)


def plot(results: dict[str, dict], title: str, file: Path) -> None:
    """Draw the losses of all steps, and their running means, which show more."""
    figure = Figure(figsize=(7, 4.5), layout='tight')
    axes = figure.subplots()
    for word, result in results.items():
        losses = np.array(result['losses'])
        (line,) = axes.plot(np.arange(len(losses)) + 1, losses, linewidth=0.8, alpha=0.4)
        width = max(len(losses) // 15, 1)
        means = np.convolve(losses, np.full(width, 1 / width), mode='valid')
        label = word if width == 1 else f'{word}, mean of {width} steps'
        axes.plot(np.arange(len(means)) + width, means, color=line.get_color(), label=label)
    axes.set(title=title, xlabel='step', ylabel='loss', xlim=(1, None), ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == '__main__':
    main()
