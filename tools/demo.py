"""Train detectors and segmentors on Shapes from random weights, test them, and show the result.

    make demo        # Mask R-CNN and SemanticFPN, in minutes on two cores
    make demo-all    # Cascade Mask R-CNN and UperNet too

Everything goes the way of a user: the data set is drawn to data/shapes (unless it is there), and
the methods are trained and tested by mim, from the installed wheel. The work-dir then holds

    contact_sheet.png      scenes, truth and predictions
    learning_curves.png    losses and scores over the iterations
    results.json           scores as fractions, and the seconds of each part
    mask_rcnn/ ...         checkpoints, logs and predictions of each method

As many methods are trained at a time as there are cores, each on one of them. Each demo starts
from the beginning. Results of an earlier run are kept: their folder is renamed to
work_dirs/demo.1, demo.2 and so on. What an interrupted run has left is replaced.
"""

import argparse
import sys
from pathlib import Path

from mminline.demo import DemoError, run_demo


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--all', action='store_true', help='all four methods')
    parser.add_argument('--seed', type=int, default=0, help='of weights and batches (default: 0)')
    parser.add_argument(
        '--work-dir',
        type=Path,
        default=Path('work_dirs/demo'),
        help='folder for the results (default: work_dirs/demo)',
    )
    args = parser.parse_args()
    if args.seed < 0:
        parser.error(f'--seed has to be at least 0, got --seed {args.seed}')
    return args


def main() -> None:
    args = parse_args()
    try:
        run_demo(args.work_dir, args.seed, args.all)
    except DemoError as error:
        sys.exit(f'demo: {error}')
    except KeyboardInterrupt:
        sys.exit('demo: interrupted; run it again, it starts from the beginning.')


if __name__ == '__main__':
    main()
