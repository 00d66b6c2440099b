"""Run a trained detector or segmentor on your images.

    python tools/infer.py CONFIG CHECKPOINT street.jpg
    python tools/infer.py CONFIG CHECKPOINT photos/ --out results --score-thr 0.5
    python tools/infer.py CONFIG CHECKPOINT drive.mp4 --device cuda:1
    python tools/infer.py CONFIG CHECKPOINT satellite.tif --full-size
    python tools/infer.py CONFIG CHECKPOINT satellite.tif --full-size --out classes.tif
    torchrun --nproc_per_node 2 tools/infer.py CONFIG CHECKPOINT satellite.tif --full-size \\
        --large on --launcher pytorch

writes to the folder --out

    pictures/street.jpg             the image with what was found; a video for a video
    predictions/street.jpg.json     detector: class, score, box and mask of each object, as COCO
                                    writes them (box: x, y, width, height; mask: run lengths)
    predictions/street.jpg.png      segmentor: the index of the class of each pixel
    predictions/drive.mp4/000000.*  the same for each frame of a video

--full-size leaves out the resizing of the config. What does not fit into memory at once is computed
in parts, with the same result (--large); its picture is reduced. If --out is a file (.png, .tif or
.npy), the class map of a single image is written to it band by band, and nothing else. With
--launcher, processes share the image, a slab of rows each: for one image.

An image that cannot be read is named and skipped. The exit code is 0 if nothing was skipped.
"""

import argparse
import sys
from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device

from mminline import inference
from mminline.apis import Predictor, init_model, read_config
from mminline.engine.errors import exit_on_bad_input, exit_on_sigterm, readable_errors
from mminline.engine.launch import choose_device, share_images
from mminline.engine.options import add_precision, make_parser
from mminline.large import FullSizePredictor
from mminline.predictions import find_images

SCORE_THR = 0.3


def parse_args() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument('checkpoint', help='file or web address of the trained weights')
    parser.add_argument(
        'source', type=Path, help='an image, a folder (all images in it) or a video'
    )
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('results'),
        help='folder for results (default: results), or file for a class map',
    )
    parser.add_argument(
        '--score-thr',
        type=float,
        help=f'leave out objects with a lower score (detectors; default: {SCORE_THR})',
    )
    parser.add_argument(
        '--device', default=get_device(), help='where to run (default: %(default)s)'
    )
    add_precision(parser)
    parser.add_argument(
        '--full-size', action='store_true', help='keep the resolution of images: no Resize'
    )
    parser.add_argument(
        '--large',
        choices=['auto', 'on', 'off'],
        help='with --full-size: compute images in parts always, never, or if they would not fit '
        'into free memory (default: auto)',
    )
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch'],
        default='none',
        help='with --large on: pytorch if torchrun started this process, to share one image '
        'between all of them (default: none)',
    )
    return parser.parse_args()


def build_predictor(config: Config, args: argparse.Namespace) -> Predictor:
    model = init_model(config, args.checkpoint, args.device, args.precision)
    score_thr = SCORE_THR if args.score_thr is None else args.score_thr
    if args.full_size:
        return FullSizePredictor(model, score_thr, args.large or 'auto')
    return Predictor(model, score_thr)


def infer(images: list[Path], predictor: Predictor, args: argparse.Namespace) -> bool:
    """Do everything that was asked for; return whether nothing was skipped."""
    with exit_on_bad_input(), share_images(args.launcher) as is_first:
        if not is_first:
            inference.assist(images[0], predictor.model)
            return True
        if inference.writes_class_map(args):
            inference.write_class_map(images[0], predictor.model, args.out)
            return True
        if inference.is_video(images[0]):
            done, total = inference.infer_video(images[0], predictor, args.out)
        else:
            done, total = inference.infer_images(images, predictor, args.out)
    print(f'{done} of {total} done, {total - done} skipped: {args.out}')
    return done == total


def main() -> None:
    args = parse_args()
    with exit_on_sigterm(), readable_errors(args.out):
        with exit_on_bad_input():
            config = read_config(args.config, args.cfg_options)
            images = find_images(args.source)
            args.device = choose_device(args.device, args.launcher)
            inference.check_options(config, args)
            predictor = build_predictor(config, args)
        complete = infer(images, predictor, args)
    sys.exit(not complete)


if __name__ == '__main__':
    main()
