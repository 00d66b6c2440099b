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
import sys
from pathlib import Path

from mminline.comparison import KINDS, compare_attention, print_table
from mminline.datasets import LEVELS

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
    parser.add_argument(
        '--kinds', nargs='+', choices=KINDS, default=list(KINDS), metavar='KIND',
        help='kinds of attention (default: all)',
    )  # fmt: skip
    parser.add_argument(
        '--seeds', nargs='+', type=int, default=[0, 1, 2], metavar='K',
        help='one run a kind for each (default: 0 1 2)',
    )  # fmt: skip
    parser.add_argument(
        '--iterations', type=int, default=600, help='of 8 scenes, for each run (default: 600)'
    )
    parser.add_argument(
        '--level', choices=LEVELS, default='plain', help='of the scenes (default: plain)'
    )
    parser.add_argument(
        '--size', type=int, default=64, help='side of a scene in pixels (default: 64)'
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


def main() -> None:
    args = parse_args()
    try:
        rows = compare_attention(
            CONFIG,
            args.kinds,
            args.seeds,
            args.iterations,
            args.root,
            args.level,
            args.size,
            args.out,
        )
    except ValueError as error:
        sys.exit(f'compare_attention: {error}')
    except KeyboardInterrupt:
        sys.exit('\ncompare_attention: interrupted; start it again, finished runs are kept')
    print_table(rows)
    print(f'wrote {args.out / "comparison.json"} and {args.out / "comparison.png"}')


if __name__ == '__main__':
    main()
