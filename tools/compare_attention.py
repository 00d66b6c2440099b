"""Train one segmentor with several kinds of attention, and compare what they learn.

    python tools/compare_attention.py
    python tools/compare_attention.py --kinds inline softmax --seeds 0 1 --iterations 600
    python tools/compare_attention.py --level cluttered --out work_dirs/compare_cluttered

Semantic FPN on Shapes, everything the same but the attention: budget, scenes and their order for
each seed, widths and depths. The kinds are

    inline            InLine attention
    inline-no-local   without its local residual
    linear            plain linear attention (ReLU map, divided by the sum), with the local residual
    linear-no-local   plain linear attention as it is usually meant
    softmax           softmax attention, every token sees every token (mmdet's PVT backbone)
    softmax-reduced   the same with fewer keys in the first three stages, as PVT has it

Each run leaves config.py, model.pth and result.json in OUT/KIND/seed_K; the table is printed, and
written with a picture as OUT/comparison.json and OUT/comparison.png. Runs that are finished are
not run again: after an interruption, or with more seeds, start the same command once more.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.utils import ProgressBar

import mminline  # noqa: F401  its import lets torch read checkpoints of mmengine
from mminline.datasets import LEVELS, write_shapes

CONFIG = (
    Path(__file__).resolve().parents[1]
    / 'configs'
    / 'segmentation'
    / 'semantic-fpn_inline-pvt-nano_shapes.py'
)
PLAIN = dict(feature_map='relu', injective=False)
# Options of InLinePVT, or how many keys a side mmdet's PVT joins to one in each stage.
KINDS = {
    'inline': {},
    'inline-no-local': dict(local_residual=False),
    'linear': PLAIN,
    'linear-no-local': dict(PLAIN, local_residual=False),
    'softmax': dict(sr_ratios=(1, 1, 1, 1)),
    'softmax-reduced': dict(sr_ratios=(8, 4, 2, 1)),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--kinds', nargs='+', choices=KINDS, default=list(KINDS), metavar='KIND',
        help='kinds of attention (default: all)',
    )  # fmt: skip
    parser.add_argument(
        '--seeds', nargs='+', type=int, default=[0, 1, 2], metavar='K',
        help='one run a kind for each (default: 0 1 2)',
    )  # fmt: skip
    parser.add_argument(
        '--iterations', type=int, default=300, help='of 8 scenes, for each run (default: 300)'
    )
    parser.add_argument(
        '--level', choices=LEVELS, default='plain', help='of Shapes (default: plain)'
    )
    parser.add_argument(
        '--root', type=Path,
        help='folder of the data, drawn if it is not there (default: data/shapes-LEVEL-SIZE)',
    )  # fmt: skip
    parser.add_argument(
        '--out', type=Path, default=Path('work_dirs/compare_attention'),
        help='folder of the runs (default: work_dirs/compare_attention)',
    )  # fmt: skip
    args = parser.parse_args()
    if args.iterations < 2:
        parser.error(f'--iterations has to be at least 2, got {args.iterations}')
    if args.root is None:
        args.root = Path(f'data/shapes-{args.level}-{args.size}')
    return args


class Progress(Hook):
    """A bar in place of the log, which goes to the run's folder."""

    def before_train(self, runner: Runner) -> None:
        self.bar = ProgressBar(runner.max_iters)

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        self.bar.update()

    def after_train(self, runner: Runner) -> None:
        print()


def prepare_data(root: Path, level: str, size: int) -> dict:
    """Draw the data unless it is there, whatever the number of scenes; return its settings."""
    record = root / 'dataset.json'
    if not record.is_file():
        write_shapes(root, size=size, level=level)
    found = json.loads(record.read_text())
    if (found['level'], found['size']) != (level, size):
        raise ValueError(
            f'--root {root} holds scenes of level {found["level"]} and size {found["size"]}, not '
            f'of {level} and {size}: take another'
        )
    return found


def make_config(kind: str, seed: int, args: argparse.Namespace, folder: Path) -> Config:
    """The shipped config with another attention, another budget and all files in one place."""
    config = Config.fromfile(CONFIG)
    use_attention(config, kind)
    use_data(config, args.root, args.size)
    use_budget(config, args.iterations)
    config.update(
        randomness=dict(seed=seed),
        work_dir=str(folder),
        experiment_name=f'{kind}-seed_{seed}',
        log_level='ERROR',
    )
    return config


def use_attention(config: Config, kind: str) -> None:
    backbone = config.model.backbone
    if 'sr_ratios' in KINDS[kind]:
        arch = backbone.arch
        config.model.backbone = dict(
            type='mmdet.PyramidVisionTransformer',
            pretrain_img_size=backbone.pretrain_size,
            embed_dims=arch.embed_dims[0],  # times num_heads in each stage
            num_heads=arch.num_heads,
            num_layers=arch.depths,
            mlp_ratios=arch.mlp_ratios,
            drop_path_rate=backbone.get('drop_path_rate', 0.0),
            **KINDS[kind],
        )
    else:
        backbone.update(KINDS[kind])


def use_data(config: Config, root: Path, size: int) -> None:
    """Scenes of another folder, as large as they are; a position embedding for each cell."""
    config.model.data_preprocessor.size = (size, size)
    backbone = config.model.backbone
    backbone['pretrain_size' if 'pretrain_size' in backbone else 'pretrain_img_size'] = size
    for split in ('train', 'val', 'test'):
        loader = config[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(root)
        for step in loader.dataset.pipeline:
            if step.type == 'Resize':
                step.scale = (size, size)


def use_budget(config: Config, iterations: int) -> None:
    """Fewer or more iterations; one checkpoint and one evaluation, at the end."""
    # The shape of the schedule stays: warm-up, then a cosine down to the end.
    warm_up, cosine = config.param_scheduler
    warm_up.end = cosine.begin = max(1, warm_up.end * iterations // cosine.end)
    cosine.end = iterations
    config.train_cfg.update(max_iters=iterations, val_interval=iterations)
    config.default_hooks.checkpoint.update(
        interval=iterations, filename_tmpl='model.pth', save_optimizer=False
    )


def train(config: Config) -> dict:
    """Train and evaluate; return the score, the size and the seconds in iterations."""
    folder = Path(config.work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    config.dump(folder / 'config.py')
    runner = Runner.from_cfg(config)
    runner.register_hook(Progress())
    runner.train()
    scalars = runner.message_hub.log_scalars
    return dict(
        mIoU=float(scalars['val/mIoU'].current()) / 100,
        parameters=sum(parameter.numel() for parameter in runner.model.parameters()),
        seconds=float(scalars['train/time'].data[0].sum()),
    )


def run(kind: str, seed: int, args: argparse.Namespace, data: dict) -> dict:
    """The result of a run, from its file if it is finished."""
    folder = args.out / kind / f'seed_{seed}'
    path = folder / 'result.json'
    settings = dict(kind=kind, seed=seed, iterations=args.iterations, data=data)
    if path.is_file():
        result = json.loads(path.read_text())
        if {name: result[name] for name in settings} != settings:
            raise ValueError(
                f'{path} is of a run with other iterations or other data: take another --out'
            )
        return result
    print(f'{kind}, seed {seed}')
    config = make_config(kind, seed, args, folder)
    result = dict(settings, **train(config))
    write_json(path, result)
    return result


def write_json(path: Path, content: object) -> None:
    """Write under another name first: a run whose result is there is finished."""
    partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
    partial.write_text(json.dumps(content, indent=2) + '\n')
    os.replace(partial, path)


def summarize(results: list[dict]) -> list[dict]:
    """Mean and spread of each kind over its seeds."""
    rows = []
    for kind in dict.fromkeys(result['kind'] for result in results):
        runs = [result for result in results if result['kind'] == kind]
        scores = [result['mIoU'] for result in runs]
        rows.append(
            dict(
                kind=kind,
                mIoU=statistics.mean(scores),
                deviation=statistics.stdev(scores) if len(scores) > 1 else None,
                parameters=runs[0]['parameters'],
                seconds=statistics.mean(result['seconds'] for result in runs),
                scores=scores,
            )
        )
    return rows


def print_table(rows: list[dict]) -> None:
    print(f'{"attention":16}  mIoU mean    std  parameters (M)  seconds of training')
    for row in rows:
        spread = '    -' if row['deviation'] is None else f'{row["deviation"]:.3f}'
        print(
            f'{row["kind"]:16}  {row["mIoU"]:9.3f}  {spread}'
            f'  {row["parameters"] / 1e6:14.2f}  {row["seconds"]:19.0f}'
        )


def plot(rows: list[dict], title: str, path: Path) -> None:
    """A dot for each run, a bar for their mean."""
    figure, axes = plt.subplots(figsize=(1.5 + 1.1 * len(rows), 3.6), layout='constrained')
    for place, row in enumerate(rows):
        count = len(row['scores'])
        offsets = [place + 0.08 * (number - (count - 1) / 2) for number in range(count)]
        label = 'one seed' if place == 0 else None
        axes.plot(offsets, row['scores'], 'o', color='#0072B2', alpha=0.8, label=label)
        label = 'mean' if place == 0 else None
        axes.hlines(row['mIoU'], place - 0.25, place + 0.25, color='#D55E00', lw=2, label=label)
    axes.set_xticks(range(len(rows)), [row['kind'].replace('-', '\n', 1) for row in rows])
    axes.set_ylabel('mIoU on validation scenes')
    axes.set_title(title, fontsize='medium')
    axes.grid(axis='y', alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    args = parse_args()
    try:
        data = prepare_data(args.root, args.level, args.size)
        results = [run(kind, seed, args, data) for kind in args.kinds for seed in args.seeds]
    except ValueError as error:
        sys.exit(f'compare_attention: {error}')
    except KeyboardInterrupt:
        sys.exit('\ncompare_attention: interrupted; start it again, finished runs are kept')
    rows = summarize(results)
    print_table(rows)
    write_json(args.out / 'comparison.json', rows)
    title = f'Semantic FPN on Shapes ({args.level}), {args.iterations} iterations'
    plot(rows, title, args.out / 'comparison.png')
    print(f'wrote {args.out / "comparison.json"} and {args.out / "comparison.png"}')


if __name__ == '__main__':
    main()
