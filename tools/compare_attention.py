"""Train one model with several kinds of attention, and compare what they learn and cost.

    python tools/compare_attention.py
    python tools/compare_attention.py --kinds inline softmax --seeds 0 1 --jobs 2
    python tools/compare_attention.py --level cluttered --out work_dirs/compare_cluttered
    python tools/compare_attention.py CONFIG --kinds inline mala SoftmaxAttention:window_size=7 \\
        --iterations 5000 --out work_dirs/compare_mine

Without CONFIG: Semantic FPN on Shapes, which is drawn if it is not there. With CONFIG: your
detector or segmentor on your data; its backbone has to be one of this project. Everything is the
same but the attention: budget, images and their order for each seed, widths and depths. All runs
start from random weights, as there are none for most kinds. The kinds are

    inline            InLine attention
    inline-no-local   without its local residual
    linear            plain linear attention (ReLU map, divided by the sum), with the local residual
    linear-no-local   plain linear attention as it is usually meant
    softmax           softmax attention, every token sees every token
    softmax-reduced   the same with fewer keys in the first three stages (mmdet's PVT)
    hydra, efficient, angular, enhanced, focused, mala
                      other linear attentions: docs/attention.md
    NAME:OPTION=VALUE,...
                      any registered layer, such as FocusedLinearAttention:focus=5

Each run leaves config.py, model.pth and result.json in OUT/KIND/seed_K. The table is printed, and
written with two pictures as OUT/comparison.json, comparison.png and curves.png. Differences are
taken seed by seed from the first kind. Multiply-adds, time and memory of one image are measured
after all trainings, on one process. Runs that are finished are not run again: after an
interruption, or with more seeds, start the same command once more.
"""

import argparse
import sys
from pathlib import Path

from mmengine.config import DictAction

from mminline.comparison import KINDS, Shapes, compare_attention, print_table
from mminline.datasets import LEVELS
from mminline.engine.errors import readable_errors

CONFIG = (
    Path(__file__).resolve().parents[1]
    / 'configs'
    / 'segmentation'
    / 'semantic-fpn_inline-pvt-nano_shapes.py'
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', nargs='?', metavar='CONFIG', help='config file (default: Shapes)')
    parser.add_argument(
        '--kinds', nargs='+', metavar='KIND',
        help='kinds of attention; the others are compared with the first (default: all by name; '
        'with CONFIG without softmax-reduced, which is for InLinePVT)',
    )  # fmt: skip
    parser.add_argument(
        '--seeds', nargs='+', type=int, default=[0, 1, 2], metavar='K',
        help='one run a kind for each (default: 0 1 2)',
    )  # fmt: skip
    parser.add_argument(
        '--iterations', type=int, metavar='N',
        help='budget of each run, with the schedule stretched to it '
        "(default: 600 on Shapes, the config's own with CONFIG)",
    )  # fmt: skip
    parser.add_argument(
        '--evaluations', type=int, metavar='N',
        help='points of the learning curve, with --iterations (default: 4)',
    )  # fmt: skip
    parser.add_argument(
        '--metric', help='score to compare, as the evaluator names it (default: mIoU or mAP)'
    )
    parser.add_argument(
        '--jobs', type=int, default=1, metavar='N',
        help='runs at a time, one a core (default: one after the other, on all cores)',
    )  # fmt: skip
    parser.add_argument(
        '--level', choices=LEVELS, help='level of the scenes of Shapes (default: plain)'
    )
    parser.add_argument('--size', type=int, help='side of a scene in pixels (default: 64)')
    parser.add_argument(
        '--root', type=Path,
        help='folder of Shapes, drawn if it is not there (default: data/shapes-LEVEL-SIZE)',
    )  # fmt: skip
    parser.add_argument(
        '--out', type=Path, default=Path('work_dirs/compare_attention'),
        help='folder of the runs (default: %(default)s)',
    )  # fmt: skip
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE',
        help='change settings of the config, such as train_dataloader.batch_size=4',
    )  # fmt: skip
    return check_args(parser, parser.parse_args())


def check_args(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.Namespace:
    """Refuse numbers that are too small, and options of Shapes beside a config."""
    for name, least in (('iterations', 2), ('evaluations', 1), ('jobs', 1), ('size', 32)):
        value = getattr(args, name)
        if value is not None and value < least:
            parser.error(f'--{name} has to be at least {least}, got {value}')
    given = [name for name in ('level', 'size', 'root') if getattr(args, name) is not None]
    if args.config and given:
        parser.error(f'--{given[0]} belongs to Shapes, and CONFIG has data of its own')
    if args.config and args.evaluations and not args.iterations:
        parser.error('--evaluations needs --iterations: the schedule of CONFIG has its own')
    args.evaluations = args.evaluations or 4
    args.kinds = args.kinds or [k for k in KINDS if not (args.config and k == 'softmax-reduced')]
    args.shapes = None
    if not args.config:
        args.config, args.iterations = CONFIG, args.iterations or 600
        level, size = args.level or 'plain', args.size or 64
        args.shapes = Shapes(args.root or Path(f'data/shapes-{level}-{size}'), level, size)
    return args


def main() -> None:
    args = parse_args()
    try:
        with readable_errors(args.out):
            rows = compare_attention(
                args.config,
                args.kinds,
                args.seeds,
                args.iterations,
                args.out,
                shapes=args.shapes,
                metric=args.metric,
                evaluations=args.evaluations,
                jobs=args.jobs,
                cfg_options=args.cfg_options,
            )
    except (TypeError, ValueError) as error:
        sys.exit(f'compare_attention: {error}')
    print_table(rows)
    print(f'wrote comparison.json, comparison.png and curves.png in {args.out}')


if __name__ == '__main__':
    main()
