"""Draw the Shapes data set, in COCO layout for mmdet and in semantic layout for mmseg.

    python tools/make_shapes.py --root data/shapes --train 1000 --val 100

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
    parser.add_argument('--size', type=int, default=128, help='height and width in pixels')
    parser.add_argument('--seed', type=int, default=0, help='other seeds give other scenes')
    parser.add_argument('--level', default='plain', help=f'one of {", ".join(LEVELS)}')
    parser.add_argument('--force', action='store_true', help='replace a data set that is there')
    return parser.parse_args()


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
