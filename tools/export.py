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

from mmengine.config import Config, DictAction
from torch import nn

import _exported
import _exporter
import mminline  # noqa: F401  its import lets torch read checkpoints of mmengine
from mminline.checkpoints import load_pretrained, read_checkpoint, unwrap

# Batch, height and width: the smallest, odd ones, long ones, and other numbers of images.
OPEN_SHAPES = [(1, 32, 32), (2, 65, 97), (1, 224, 224), (3, 129, 260), (1, 333, 245)]


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


def check_options(args: argparse.Namespace) -> None:
    """End the program if the options cannot work, before anything is built."""
    if not Path(args.config).is_file():
        sys.exit(f'There is no config {args.config}.')
    if min(args.shape) < _exporter.SMALLEST:
        sys.exit(f'--shape has to be at least 32 32, got {args.shape[0]} {args.shape[1]}.')
    if args.out and not args.out.parent.is_dir():
        sys.exit(f'--out has to be in a folder that exists, got {args.out}.')
    if args.format == 'onnx':
        _exporter.check_packages()


def choose_part(model: nn.Module, what: str | None) -> str:
    """What to export, or the end of the program if the model does not have it."""
    is_segmentor = hasattr(model, 'decode_head')
    if what is None and not is_segmentor:
        print(
            'The head of a detector cannot be exported: non-maximum suppression and the cutting '
            'of regions are operations of mmcv. These are the features of backbone and neck.'
        )
    what = what or ('segmentor' if is_segmentor else 'features')
    if what == 'segmentor' and not is_segmentor:
        sys.exit(
            f'--what segmentor needs a segmentor, got {type(model).__name__}, whose head cannot be '
            'exported: use features or backbone.'
        )
    if what == 'segmentor' and isinstance(model.decode_head, nn.ModuleList):
        sys.exit('A cascade of heads cannot be exported: use --what features or backbone.')
    if what == 'features' and not model.with_neck:
        sys.exit('--what features needs a neck, and this model has none: use backbone.')
    if what == 'segmentor' and model.test_cfg.get('mode') == 'slide':
        print('The config predicts in sliding windows; the graph predicts whole images.')
    return what


def load_weights(model: nn.Module, checkpoint: str | None, what: str) -> None:
    """Fill all that is exported, or end the program."""
    if checkpoint is None:
        print('No checkpoint is given: the weights are random.')
        return
    weights = unwrap(read_checkpoint(checkpoint))
    parts = {'backbone': ['backbone'], 'features': ['backbone', 'neck']}
    parts = parts.get(what, ['backbone', 'neck', 'decode_head'])
    wanted = {key for key in model.state_dict() if key.split('.')[0] in parts}
    if what == 'backbone' and not wanted & weights.keys():
        load_pretrained(model.backbone, checkpoint)
        return
    if missing := sorted(wanted - weights.keys()):
        sys.exit(
            f'{checkpoint} has to hold {", ".join(parts)} for --what {what}, and {len(missing)} of '
            f'their tensors are not there: {", ".join(missing[:3])}, ... (For a checkpoint of a '
            'backbone alone: --what backbone.)'
        )
    try:
        model.load_state_dict({key: weights[key] for key in wanted}, strict=False)
    except RuntimeError as error:
        sys.exit(f'{checkpoint} is of another model than {type(model).__name__}: {error}')


def write_file(module: nn.Module, path: Path, args: argparse.Namespace) -> None:
    """Trace and write; end the program with the cause if a layer cannot be exported."""
    try:
        with _exporter.timed('tracing'):
            program = _exporter.trace(module, tuple(args.shape), args.dynamic)
        with _exporter.timed(f'writing {path}'):
            _exporter.save(program, path, args.format)
    except Exception as error:  # tracer and converters raise all kinds
        while error.__cause__:
            error = error.__cause__
        sys.exit(f'{path} was not written, {type(error).__name__}: {error}')
    print(f'{path}: {path.stat().st_size / 1e6:.1f} MB')


def check_file(module: nn.Module, path: Path, args: argparse.Namespace) -> None:
    """Run the file and print how it compares with PyTorch; end the program if it differs."""
    run = _exporter.load(path, args.format)
    shapes = [(1, *args.shape), *(OPEN_SHAPES if args.dynamic else [])]
    unit = 'largest difference / largest value' if module.head is None else 'share of pixels'
    print(f'{"batch":>5}  {"height x width":>14}  {unit}')
    errors = []
    for (batch, height, width), error in _exporter.compare(module, run, shapes):
        errors.append(error)
        print(f'{batch:>5}  {height:>6} x {width:<5}  {error:.1e}', flush=True)
    if not max(errors) <= _exporter.LARGEST_ERROR:  # nor a NaN
        sys.exit(f'{path} does not do what the model does: see the differences above.')
    if args.time:
        by_file, by_torch = _exporter.race(module, run, args.shape, args.time)
        print(
            f'One image of {args.shape[0]} x {args.shape[1]}: file {by_file * 1e3:.0f} ms, '
            f'PyTorch {by_torch * 1e3:.0f} ms (median of {args.time}, in turn)'
        )


def main() -> None:
    args = parse_args()
    check_options(args)
    config = Config.fromfile(args.config)
    config.merge_from_dict(args.cfg_options)
    model = _exported.build(config)
    what = choose_part(model, args.what)
    load_weights(model, args.checkpoint, what)
    module = _exported.Exported(model, what, not args.no_normalize).eval()
    path = args.out or Path(f'{Path(args.config).stem}-{what}.{args.format}')
    write_file(module, path, args)
    check_file(module, path, args)


if __name__ == '__main__':
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f'export: {error}')
