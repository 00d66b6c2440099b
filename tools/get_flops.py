"""Count multiply-adds and parameters of whole models, without a data set.

    python tools/get_flops.py configs/detection/mask-rcnn_*
    python tools/get_flops.py configs/segmentation/upernet_inline-swin-t_160k_ade20k-512x512.py \
        --shape 1024 1024 --json

GMACs are what papers call FLOPs, for the form of attention that papers count, with queries and
keys built; "executed" is what runs here, where both are folded away. Detectors are counted with
1000 proposals and 100 masks, segmentors without their auxiliary head.
"""

import argparse
import json
import sys
from pathlib import Path

from mminline.analysis.config_complexity import measure_config


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('configs', nargs='+', metavar='CONFIG', help='config files')
    parser.add_argument(
        '--shape',
        nargs=2,
        type=int,
        metavar=('H', 'W'),
        help='height and width of the image (default: 800 1280 for detectors, '
        '512 2048 for segmentors, as in the literature)',
    )
    parser.add_argument('--json', action='store_true', help='print JSON instead of a table')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    paths = [Path(name) for name in args.configs]
    if missing := [str(path) for path in paths if not path.is_file()]:
        sys.exit(f'There is no config {", ".join(missing)}.')
    width = max(len(path.stem) for path in paths)
    if not args.json:
        print(f'{"config":{width}}  {"height x width":>14}  {"GMACs":>7}  executed  parameters (M)')
    rows = {}
    for path in paths:
        cost, shape = measure_config(path, args.shape and tuple(args.shape))
        rows[path.stem] = dict(height=shape[0], width=shape[1], **cost._asdict())
        if not args.json:
            print(
                f'{path.stem:{width}}  {shape[0]:>6} x {shape[1]:<5}  {cost.usual_macs / 1e9:7.1f}'
                f'  {cost.macs / 1e9:8.1f}  {cost.parameters / 1e6:14.2f}',
                flush=True,
            )
    if args.json:
        print(json.dumps(rows, indent=2))


if __name__ == '__main__':
    main()
