"""Measure how the AP of a detector depends on the batch size, which decides how images are padded.

    python benchmarks/padding.py train --jobs 2
    python benchmarks/padding.py train --models inline --seeds 0 --iterations 4 --out work_dirs/try
    python benchmarks/padding.py test CONFIG CHECKPOINT --batch-sizes 1 4 16
    python benchmarks/padding.py parts CONFIG CHECKPOINT --batch-size 16

`train` draws scenes of different size, trains a small Mask R-CNN with each backbone and seed, each
in a process of one thread, tests it with each batch size and prints a table. It can be interrupted:
finished runs are kept in --out, others go on from their last checkpoint. `parts` tells after which
part of a detector an image in a batch begins to differ from the image alone.
"""

import argparse
import copy
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from padding_configs import BACKBONES, make_config
from tables import markdown

METRICS = {'box AP': 'coco/bbox_mAP', 'mask AP': 'coco/segm_mAP'}
BATCH_SIZES = [1, 4, 16]
SCENES = dict(train=1000, val=200, size=(64, 160))


def main() -> None:
    args = parse_args()
    if args.command == 'train':
        train_all(args)
    elif args.command == 'test':
        from mminline.engine.config import load_run_config

        config = load_run_config(args.config)
        print(score_table([dict(scores=test(config, args.checkpoint, args.batch_sizes))]))
    elif args.command == 'parts':
        from mmengine.config import Config
        from padding_parts import compare_parts

        print(compare_parts(Config.fromfile(args.config), args.checkpoint, args.batch_size))
    else:
        run(args.model, args.seed, args.iterations, args.batch_sizes, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')
    train = commands.add_parser('train', help='train and test detectors')
    train.add_argument('--models', nargs='+', default=list(BACKBONES), choices=BACKBONES)
    train.add_argument('--seeds', nargs='+', type=int, default=[0, 1])
    train.add_argument('--jobs', type=int, default=1, help='runs at a time')
    test = commands.add_parser('test', help='test a checkpoint')
    parts = commands.add_parser('parts', help='compare maps of images alone and in a batch')
    parts.add_argument('--batch-size', type=int, default=16)
    for command in (test, parts):
        command.add_argument('config')
        command.add_argument('checkpoint')
    one = commands.add_parser('run', help='one run of train, in this process')
    one.add_argument('model', choices=BACKBONES)
    one.add_argument('seed', type=int)
    for command in (train, one):
        command.add_argument('--iterations', type=int, default=400)
        command.add_argument('--out', type=Path, default=Path('work_dirs/padding'))
    for command in (train, test, one):
        command.add_argument('--batch-sizes', nargs='+', type=int, default=BATCH_SIZES)
    return parser.parse_args()


def train_all(args: argparse.Namespace) -> None:
    """Run everything that is not finished, each in a process; print what is."""
    from mminline.datasets import write_shapes

    write_shapes(args.out / 'shapes', **SCENES)
    runs = [(model, seed) for model in args.models for seed in args.seeds]
    with ThreadPoolExecutor(args.jobs) as pool:
        failed = [pair for pair in pool.map(lambda pair: start(*pair, args), runs) if pair]
    results = [json.loads(path.read_text()) for path in sorted(args.out.glob('*/*/result.json'))]
    print(score_table(results))
    if failed:
        sys.exit(f'failed, see output.txt in their folders in {args.out}: {failed}')


def start(model: str, seed: int, args: argparse.Namespace) -> tuple[str, int] | None:
    """Start a process for a run and wait for it; return the run if it fails."""
    folder = run_folder(args.out, model, seed)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, 'run', model, str(seed), '--out', args.out]
    command += ['--iterations', str(args.iterations), '--batch-sizes', *map(str, args.batch_sizes)]
    with (folder / 'output.txt').open('a') as output:
        done = subprocess.run(
            command,
            env=dict(os.environ, OMP_NUM_THREADS='1'),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    print(f'{model}, seed {seed}: {"failed" if done.returncode else "done"}', flush=True)
    return (model, seed) if done.returncode else None


def run_folder(out: Path, model: str, seed: int) -> Path:
    return out / re.sub(r'\W+', '-', model).strip('-') / f'seed_{seed}'


def run(model: str, seed: int, iterations: int, batch_sizes: list[int], out: Path) -> None:
    """Train a model, unless that is done, and test it; write result.json."""
    from mminline.engine.config import load_run_config
    from mminline.engine.resume import resume
    from mminline.engine.runs import prepare_training, train

    folder = run_folder(out, model, seed)
    checkpoint = folder / f'iter_{iterations}.pth'
    settings = dict(model=model, seed=seed, iterations=iterations)
    if (folder / 'result.json').exists():
        result = json.loads((folder / 'result.json').read_text())
        if settings | result == result and set(map(str, batch_sizes)) <= set(result['scores']):
            return
    folder.mkdir(parents=True, exist_ok=True)
    make_config(model, seed, iterations, out / 'shapes', folder).dump(folder / 'config.py')
    if not checkpoint.exists():
        config = load_run_config(folder / 'config.py')
        resume(config)
        prepare_training(config)
        train(config)
    scores = test(load_run_config(folder / 'config.py'), checkpoint, batch_sizes)
    result = dict(settings, seconds=training_time(checkpoint), scores=scores)
    (folder / 'result.json').write_text(json.dumps(result, indent=1))


def training_time(checkpoint: Path) -> float:
    """Seconds of all iterations, also of those before an interruption: the checkpoint has a log."""
    from mminline.checkpoints.reader import read_file

    log = read_file(checkpoint)['message_hub']['log_scalars']['train/time']
    return float(log.data[0].sum())


def test(config, checkpoint: Path | str, batch_sizes: list[int]) -> dict[str, dict[str, float]]:
    """Test one checkpoint with several batch sizes; return the scores of each."""
    from mminline.engine.runs import evaluate, prepare_test

    scores = {}
    for batch_size in batch_sizes:
        once = copy.deepcopy(config)
        once.test_dataloader.batch_size = batch_size
        # mmengine keeps one of each name.
        once.experiment_name = once.visualizer.name = f'batches of {batch_size}'
        prepare_test(once, checkpoint)
        found = evaluate(once)
        scores[str(batch_size)] = {name: 100 * found[key] for name, key in METRICS.items()}
    return scores


def score_table(results: list[dict]) -> str:
    """Table of scores: one row a run and metric, one column a batch size, and their spread."""
    sizes = list(dict.fromkeys(size for result in results for size in result['scores']))
    header = ('model', 'seed', 'metric', *(f'batch {size}' for size in sizes), 'spread', 'training')
    rows = [header]
    for result in results:
        for metric in METRICS:
            values = {size: scores[metric] for size, scores in result['scores'].items()}
            cells = [f'{values[size]:.1f}' if size in values else '' for size in sizes]
            spread = f'{max(values.values()) - min(values.values()):.1f}'
            seconds = f'{result["seconds"]:.0f} s' if 'seconds' in result else ''
            name, seed = result.get('model', ''), str(result.get('seed', ''))
            rows.append((name, seed, metric, *cells, spread, seconds))
    return markdown(rows)


if __name__ == '__main__':
    main()
