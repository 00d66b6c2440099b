"""Export a detector or a segmentor, or its features, to ONNX or to a torch.export file.

    python tools/export.py CONFIG CHECKPOINT                    # a whole detector, in ONNX
    python tools/export.py CONFIG CHECKPOINT --paste --score-thr 0.3 --evaluate
    python tools/export.py CONFIG CHECKPOINT --dynamic          # a segmentor for any size
    python tools/export.py CONFIG CHECKPOINT --format pt2 --shape 512 512 --what backbone

The graph takes `image`, float32 of shape (B, 3, H, W): RGB values from 0 to 255. Normalisation is
part of the graph, unless --no-normalize is given, and so is padding.

A detector takes one image of any size and gives `dets` (N, 5), left, top, right and bottom in
pixels and the score, best first; `labels` (N,); and `masks`, probabilities (N, 28, 28) inside the
boxes, or with --paste booleans (N, H, W). A segmentor gives `class_map`, int64 (B, H, W), as mmseg
predicts it for a whole image, and `scores`, the output of its head before that is resized to the
image. Features are `map0`, `map1`, ..., fine to coarse.

The file is then run (by onnxruntime or by PyTorch) and compared with the model; if they differ,
there is no file and the exit code is 1. tools/infer_onnx.py runs ONNX files on images.
"""

import argparse
import sys
from pathlib import Path

from mmengine.config import DictAction
from torch import nn

from mminline.apis import export_model, init_model, read_config
from mminline.apis.export import (
    ExportError,
    check_request,
    choose_part,
    evaluate,
    load_part,
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config file, of a detector or a segmentor')
    parser.add_argument('checkpoint', nargs='?', help='trained weights (default: random ones)')
    parser.add_argument(
        '--format', choices=['onnx', 'pt2'], default='onnx', help='kind of file (default: onnx)'
    )
    parser.add_argument(
        '--what',
        choices=['detector', 'segmentor', 'features', 'backbone'],
        help='features are those of backbone and neck (default: the whole model)',
    )
    parser.add_argument(
        '--shape', nargs=2, type=int, default=(512, 512), metavar=('H', 'W'),
        help='height and width, if they are not open (default: 512 512)',
    )  # fmt: skip
    parser.add_argument(
        '--dynamic', action=argparse.BooleanOptionalAction,
        help='leave batch, height and width open (default: for detectors, but one image)',
    )  # fmt: skip
    parser.add_argument(
        '--score-thr', type=float, help="least score of a detection (default: the config's)"
    )
    parser.add_argument(
        '--nms-thr', type=float,
        help="overlap above which the worse of two detections is dropped (default: the config's)",
    )  # fmt: skip
    parser.add_argument(
        '--paste', action='store_true', help='masks of the whole image, not of the boxes'
    )
    parser.add_argument(
        '--evaluate', action='store_true',
        help="compute the config's metric on its test data, for the file and for PyTorch",
    )  # fmt: skip
    parser.add_argument(
        '--no-normalize', action='store_true', help='leave mean and std of the config out'
    )
    parser.add_argument(
        '--time', type=int, default=0, metavar='N',
        help='time the file and PyTorch, as init_model accelerates it, N times in turn',
    )  # fmt: skip
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
    if args.evaluate and (args.format != 'onnx' or what not in ('detector', 'segmentor')):
        raise ValueError('--evaluate needs a whole detector or segmentor in ONNX')
    if args.evaluate and args.no_normalize:
        raise ValueError('--evaluate needs mean and std in the file: leave --no-normalize out')
    if args.evaluate and what == 'segmentor' and args.dynamic is None:
        args.dynamic = True  # test images have sizes of their own
    if what == 'segmentor' and model.test_cfg.get('mode') == 'slide':
        print('The config predicts in sliding windows; the graph predicts whole images.')
    if args.checkpoint is None:
        print('No checkpoint is given: the weights are random.')
    else:
        load_part(model, args.checkpoint, what)
    return model, what


def print_scores(of_file: dict[str, float], of_model: dict[str, float]) -> None:
    """Print scores side by side."""
    print(f'{"":24}  {"file":>8}  {"PyTorch":>8}')
    for name, score in of_model.items():
        print(f'{name:24}  {of_file[name]:8.4f}  {score:8.4f}')


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
        score_thr=args.score_thr,
        nms_thr=args.nms_thr,
        paste=args.paste,
    )
    if args.time:
        by_file, by_torch = exported.time(args.shape, args.time)
        print(
            f'One image of {args.shape[0]} x {args.shape[1]}: file {by_file * 1e3:.0f} ms, '
            f'PyTorch {by_torch * 1e3:.0f} ms, with the faster neck and heads of init_model '
            f'(median of {args.time}, in turn)'
        )
    if args.evaluate:
        print_scores(*evaluate(exported, model.cfg))


if __name__ == '__main__':
    try:
        main()
    except (OSError, ValueError, ExportError) as error:
        sys.exit(f'export: {error}')
