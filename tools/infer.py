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
import contextlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import cv2
import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.utils import ProgressBar

from mminline.apis import Predictor, init_model, read_config
from mminline.engine.data import check_checkpoint
from mminline.engine.errors import exit_on_bad_input, readable_errors
from mminline.engine.launch import check_launcher, share_images
from mminline.engine.options import add_precision, make_parser
from mminline.engine.stopwatch import Stopwatch
from mminline.large import FullSizePredictor, open_image, predict
from mminline.large.predictor import show_progress
from mminline.large.writers import WRITERS

IMAGES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
VIDEOS = ('.avi', '.m4v', '.mkv', '.mov', '.mp4', '.mpeg', '.mpg', '.webm')
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


def find_images(source: Path) -> list[Path]:
    """List the images that are asked for."""
    if not source.exists():
        raise FileNotFoundError(f'There is no image, folder or video {source}.')
    if source.is_file():
        return [source]
    images = sorted(path for path in source.iterdir() if path.suffix.lower() in IMAGES)
    if not images:
        raise FileNotFoundError(
            f'There is no image in {source} ({", ".join(IMAGES)}; subfolders do not count).'
        )
    return images


def check_options(config: Config, args: argparse.Namespace) -> None:
    """Raise an error that names an option which cannot work, before anything is built."""
    check_checkpoint(args.checkpoint)
    if args.large and not args.full_size:
        raise ValueError('--large is for images that keep their resolution: add --full-size.')
    if args.launcher != 'none':
        check_sharing(args)
    if is_class_map(args):
        check_class_map(config, args)
    elif args.out.is_file():
        raise ValueError(f'--out has to be a folder, and {args.out} is a file.')
    elif args.out.suffix.lower() in WRITERS and not args.out.is_dir():
        raise ValueError(f'--out {args.out} is a file for a class map, which needs --full-size.')
    if config.default_scope == 'mmseg' and args.score_thr is not None:
        raise ValueError('--score-thr is for detectors: a segmentor gives every pixel a class.')
    if args.full_size and args.precision != 'float32':
        raise ValueError('--full-size runs in float32: leave --precision out.')
    try:
        torch.empty(0, device=args.device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f'--device {args.device} cannot be used: {reason}') from None


def is_class_map(args: argparse.Namespace) -> bool:
    """Whether --out is a file for the class map of one image."""
    return args.full_size and args.out.suffix.lower() in WRITERS


def check_class_map(config: Config, args: argparse.Namespace) -> None:
    if config.default_scope != 'mmseg':
        raise ValueError(f'--out {args.out} is for class maps: name a folder for a detector.')
    if not args.source.is_file():
        raise ValueError(
            f'--out {args.out} is for a single image: name a folder for {args.source}.'
        )
    if args.large == 'off':
        raise ValueError(f'--out {args.out} is written in parts: leave --large off out.')


def check_sharing(args: argparse.Namespace) -> None:
    check_launcher(args.launcher)
    if args.large != 'on':
        raise ValueError('--launcher is for images in parts: add --full-size --large on.')
    if not args.source.is_file() or args.source.suffix.lower() in VIDEOS:
        raise ValueError(f'--launcher is for a single image, and {args.source} is none.')


def build_predictor(config: Config, args: argparse.Namespace) -> Predictor:
    # Heads in their faster form round by the position in a map, and parts of an image have others.
    fast = not args.full_size
    model = init_model(config, args.checkpoint, args.device, args.precision, fast=fast)
    score_thr = SCORE_THR if args.score_thr is None else args.score_thr
    if args.full_size:
        return FullSizePredictor(model, score_thr, args.large or 'auto')
    return Predictor(model, score_thr)


def read_image(path: Path) -> np.ndarray:
    """Read an image in colour, or raise a ValueError: OpenCV may return None, or raise its own."""
    with contextlib.suppress(cv2.error):
        image_HWC = mmcv.imread(path)
        if image_HWC is not None:
            return image_HWC
    raise ValueError('it is empty, cut off or no image')


def write_image(folder: Path, name: str, picture_HWC: np.ndarray) -> None:
    if name.lower().endswith('.npy'):  # read in bands, and no format of pictures
        name = f'{name}.png'
    if not mmcv.imwrite(picture_HWC, str(folder / name)):
        raise OSError(f'{folder / name} cannot be written')


def infer(
    items: Iterable[tuple[str, Callable[[], np.ndarray]]],
    total: int,
    predictor: Predictor,
    predictions: Path,
    keep: Callable[[str, np.ndarray], None],
) -> int:
    """Predict for each item, whatever becomes of the others; return how many were done.

    Args:
        items: Name of each image, and how to get it.
        total: Number of items.
        predictor: The model.
        predictions: Folder for predictions as data.
        keep: Called with the name and the picture of each.
    """
    done = 0
    progress = ProgressBar(total)
    stopwatch = Stopwatch()
    for name, read in stopwatch.measure_items('read', items):
        try:
            with stopwatch.measure('read'):
                image_HWC = read()
            with stopwatch.measure('predict'):
                sample = predictor.predict(image_HWC)
            with stopwatch.measure('draw'):
                picture_HWC = predictor.draw(image_HWC, sample)
            with stopwatch.measure('write'):
                predictor.save(sample, predictions / name)
                keep(name, picture_HWC)
            done += 1
        except Exception as error:  # no image may keep the others from being done
            print(f'\nSkipped {name}: {error}', file=sys.stderr)
        progress.update()
    print()
    if done:
        print(f'Seconds for each image: {stopwatch.describe(done)}')
    return done


def infer_images(images: list[Path], predictor: Predictor, out: Path) -> tuple[int, int]:
    """Do single images; return how many were done, and how many there are."""
    read = open_image if isinstance(predictor, FullSizePredictor) else read_image
    items = ((path.name, partial(read, path)) for path in images)
    keep = partial(write_image, out / 'pictures')
    return infer(items, len(images), predictor, out / 'predictions', keep), len(images)


def write_class_map(path: Path, predictor: Predictor, out: Path) -> None:
    """Do a single image whose class map is all that is written."""
    with exit_on_bad_input():
        print(predict(predictor.model, open_image(path), out=out, report=show_progress))


def assist(path: Path, predictor: Predictor) -> None:
    """Compute the own rows of an image; the first process has the result, and names errors."""
    try:
        predict(predictor.model, open_image(path))
    except (OSError, ValueError):
        sys.exit(1)


def infer_video(path: Path, predictor: Predictor, out: Path) -> tuple[int, int]:
    """Do a video; return how many frames were done, and how many it should have."""
    video = mmcv.VideoReader(str(path))
    if not video.opened or video.frame_cnt < 1:
        sys.exit(f'{path} cannot be read as a video.')
    name = path.name if path.suffix == '.mp4' else f'{path.name}.mp4'
    (out / 'pictures').mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(
        str(out / 'pictures' / name),
        cv2.VideoWriter_fourcc(*'mp4v'),
        video.fps,
        (video.width, video.height),
    )
    frames = (
        (f'{path.name}/{number:06d}', partial(np.asarray, frame))
        for number, frame in enumerate(video)
    )
    try:
        done = infer(
            frames,
            video.frame_cnt,
            predictor,
            out / 'predictions',
            # The writer drops frames of another size, such as reduced pictures, without a word.
            lambda _, picture_HWC: writer.write(
                cv2.resize(picture_HWC, (video.width, video.height))
            ),
        )
    finally:
        writer.release()  # only then can it be played
    return done, max(done, video.frame_cnt)  # headers may promise too few


def main() -> None:
    args = parse_args()
    with readable_errors(args.out):
        with exit_on_bad_input():
            config = read_config(args.config, args.cfg_options)
            images = find_images(args.source)
            check_options(config, args)
            predictor = build_predictor(config, args)
        with share_images(args.launcher) as is_first:
            if not is_first:
                return assist(images[0], predictor)
            if is_class_map(args):
                return write_class_map(images[0], predictor, args.out)
            if images[0].suffix.lower() in VIDEOS:
                done, total = infer_video(images[0], predictor, args.out)
            else:
                done, total = infer_images(images, predictor, args.out)
    print(f'{done} of {total} done, {total - done} skipped: {args.out}')
    sys.exit(done < total)


if __name__ == '__main__':
    main()
