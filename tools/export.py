"""Export a segmentor, or the features of a detector, to ONNX or to a torch.export file.

    python tools/export.py CONFIG CHECKPOINT --format onnx --dynamic
    python tools/export.py CONFIG CHECKPOINT --format pt2 --shape 512 512 --what backbone

The graph takes `image`, float32 of shape (B, 3, H, W): RGB pixel values from 0 to 255 as they are
in a file (the channel order of the config's mean and std). Normalisation is part of the graph,
unless --no-normalize is given. Any height and width from 32 on needs no padding.

A segmentor gives `class_map`, int64 of shape (B, H, W), as mmseg predicts it for a whole image;
features are `map0`, `map1`, ..., fine to coarse. Heads of detectors are not exported: they choose
boxes by non-maximum suppression and cut regions out of the features, with operations of mmcv that
standard ONNX does not have.

Without --dynamic the graph is for one image of --shape; with it, for any number of any size. The
file is then run (by onnxruntime or by PyTorch) and compared with the model; a difference of more
than a thousandth, of the largest value or of the pixels, is an error.
"""

import argparse
import sys
from pathlib import Path

from mmengine.config import DictAction
from torch import nn

from mminline.apis import export_model, init_model, read_config
from mminline.apis.export import ExportError, check_request, choose_part, load_part


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config file, of a detector or a segmentor')
    parser.add_argument('checkpoint', nargs='?', help='trained weights (default: random ones)')
    parser.add_argument('--format', choices=['onnx', 'pt2'], required=True, help='kind of file')
    parser.add_argument(
        '--what',
        choices=['backbone', 'features', 'segmentor'],
        help='features are those of backbone and neck (default: segmentor for a segmentor, '
        'features for a detector)',
    )
    parser.add_argument(
        '--shape', nargs=2, type=int, default=(512, 512), metavar=('H', 'W'),
        help='height and width (default: 512 512)',
    )  # fmt: skip
    parser.add_argument('--dynamic', action='store_true', help='leave batch, height and width open')
    parser.add_argument(
        '--no-normalize', action='store_true', help='leave mean and std of the config out'
    )
    parser.add_argument(
        '--time', type=int, default=0, metavar='N', help='time file and model N times, in turn'
    )
    parser.add_argument('--out', type=Path, help='file to write (default: CONFIG-WHAT.FORMAT)')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE',
        help='change settings of the config',
    )  # fmt: skip
    return parser.parse_args()


def load_model(args: argparse.Namespace) -> tuple[nn.Module, str]:
    """Build the model and fill what is exported; return both, with notes for the user."""
    config = read_config(args.config, args.cfg_options)
    model = init_model(config, device='cpu', fast=False)
    what = choose_part(model, args.what)
    if args.what is None and what == 'features':
        print(
            'The head of a detector cannot be exported: non-maximum suppression and the cutting '
            'of regions are operations of mmcv. These are the features of backbone and neck.'
        )
    if what == 'segmentor' and model.test_cfg.get('mode') == 'slide':
        print('The config predicts in sliding windows; the graph predicts whole images.')
    if args.checkpoint is None:
        print('No checkpoint is given: the weights are random.')
    else:
        load_part(model, args.checkpoint, what)
    return model, what


def main() -> None:
    args = parse_args()
    check_request(args.out or Path(), args.format, args.shape)
    model, what = load_model(args)
    exported = export_model(
        model,
        args.out or f'{Path(args.config).stem}-{what}.{args.format}',
        what,
        args.shape,
        args.dynamic,
        not args.no_normalize,
        args.format,
        verbose=True,
    )
    if args.time:
        by_file, by_torch = exported.time(args.shape, args.time)
        print(
            f'One image of {args.shape[0]} x {args.shape[1]}: file {by_file * 1e3:.0f} ms, '
            f'PyTorch {by_torch * 1e3:.0f} ms (median of {args.time}, in turn)'
        )


if __name__ == '__main__':
    try:
        main()
    except (OSError, ValueError, ExportError) as error:
        sys.exit(f'export: {error}')
