"""Measure what bfloat16 costs in accuracy, and how training in it compares with float32.

    python benchmarks/precision.py scores CONFIG CHECKPOINT [CONFIG CHECKPOINT ...]
    python benchmarks/precision.py losses CONFIG --steps 60 --out work_dirs/precision

`scores` tests each checkpoint in each precision, and in float32 with neck and heads in their
plain form too. `losses` trains the model of a config on its first training image from the same
random weights in each precision, and writes the losses and the seconds of a step
to losses.json, and a figure to losses.png.
"""

import argparse
import copy
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS

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
        results = {word: train(config, kind, args.steps) for word, kind in WRAPPERS.items()}
        plot(results, args.out / 'losses.png')
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
    losses.add_argument('--steps', type=int, default=60)
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
    """Losses of a training on one image, and seconds of a step."""
    torch.manual_seed(0)
    model = init_model(config, device='cpu', fast=False).train()
    settings = dict(copy.deepcopy(config.optim_wrapper), type=wrapper)
    optim_wrapper = build_optim_wrapper(model, settings)
    sample = DATASETS.build(config.train_dataloader.dataset)[0]
    torch.manual_seed(0)  # regions are drawn at random
    losses, seconds = [], []
    for step in range(steps):
        start = time.perf_counter()
        data = pseudo_collate([copy.deepcopy(sample)])
        losses.append(model.train_step(data, optim_wrapper)['loss'].item())
        seconds.append(time.perf_counter() - start)
        print(f'\r{wrapper}: step {step + 1} of {steps}', end='', file=sys.stderr)
    print(file=sys.stderr)
    return dict(losses=losses, seconds=statistics.median(seconds))


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


def plot(results: dict[str, dict], file: Path) -> None:
    """Draw the loss curves."""
    figure = Figure(figsize=(6, 4), layout='tight')
    axes = figure.subplots()
    for word, result in results.items():
        axes.plot(range(1, len(result['losses']) + 1), result['losses'], label=word)
    axes.set(xlabel='step', ylabel='loss', yscale='log')
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == '__main__':
    main()
