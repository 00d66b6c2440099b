"""Draw the Shapes data set, in COCO layout for mmdet and in semantic layout for mmseg.

    python tools/make_shapes.py --root data/shapes --train 1000 --val 100

    python tools/make_shapes.py --size 64 160         # scenes of varying height and width

writes, for each split,

    images/train/000000.png               the scenes
    annotations/instances_train.json      COCO instances, masks of the visible pixels
    semantic/train/000000.png             class index of each pixel, 0 is background

and ``dataset.json`` with the settings, last of all.
"""

import argparse
import sys

from mminline.datasets import LEVELS, write_shapes


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Draw the Shapes data set.',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('--root', default='data/shapes', help='folder to write to')
    parser.add_argument('--train', type=int, default=1000, help='number of training scenes')
    parser.add_argument('--val', type=int, default=100, help='number of validation scenes')
    parser.add_argument(
        '--size',
        type=int,
        nargs='+',
        default=128,
        metavar=('MIN', 'MAX'),
        help='height and width in pixels; if two numbers, drawn between them for each scene',
    )
    parser.add_argument('--seed', type=int, default=0, help='other seeds give other scenes')
    parser.add_argument('--level', default='plain', help=f'one of {", ".join(LEVELS)}')
    parser.add_argument('--force', action='store_true', help='replace a data set that is there')
    args = parser.parse_args()
    if isinstance(args.size, list) and len(args.size) == 1:
        args.size = args.size[0]
    return args


def main() -> None:
    args = parse_args()
    try:
        drawn = write_shapes(**vars(args))
    except (OSError, ValueError) as error:
        sys.exit(f'make_shapes: {error}')
    except KeyboardInterrupt:
        sys.exit('make_shapes: interrupted; run it again, it starts from the first scene')
    if drawn:
        print(f'wrote {args.root}')
    else:
        print(f'{args.root} is there already, with these settings: nothing to do')


if __name__ == '__main__':
    main()
