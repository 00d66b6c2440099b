"""Run an exported detector or segmentor on your images, without torch and OpenMMLab.

    pip install numpy opencv-python-headless "onnxruntime>=1.17"
    python tools/infer_onnx.py mask-rcnn.onnx street.jpg
    python tools/infer_onnx.py mask-rcnn.onnx photos/ --out results --score-thr 0.5

FILE is an ONNX file that tools/export.py wrote for a detector or a segmentor. It knows its classes,
colours and the size that images are resized to. Written are the files of tools/infer.py:

    pictures/street.jpg             the image with what was found
    predictions/street.jpg.json     detector: class, score, box and mask of each object, as COCO
                                    writes them (box: x, y, width, height; mask: run lengths)
    predictions/street.jpg.png      segmentor: the index of the class of each pixel

An image that cannot be read is named and skipped. The exit code is 0 if nothing was skipped.
"""

import argparse
import sys
from pathlib import Path

# Beside a copy of the sources nothing has to be installed; what this needs of them is plain.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from mminline.deployment import OnnxModel
from mminline.predictions import find_images, read_image, write_image

SCORE_THR = 0.3


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('file', metavar='FILE', type=Path, help='ONNX file of tools/export.py')
    parser.add_argument('source', type=Path, help='an image or a folder (all images in it)')
    parser.add_argument(
        '--out', type=Path, default=Path('results'), help='folder for results (default: results)'
    )
    parser.add_argument(
        '--score-thr',
        type=float,
        help=f'leave out objects with a lower score, whatever the threshold of the file '
        f'(detectors; default: {SCORE_THR}, or that of the file if it is higher)',
    )
    parser.add_argument(
        '--threads', type=int, default=0, help='threads of onnxruntime (default: one a core)'
    )
    return parser.parse_args()


def open_model(args: argparse.Namespace) -> OnnxModel:
    """Open the file, or raise an error that names what cannot work."""
    if not args.file.is_file():
        raise FileNotFoundError(f'There is no file {args.file}.')
    if args.out.is_file():
        raise ValueError(f'--out has to be a folder, and {args.out} is a file.')
    model = OnnxModel(args.file, args.score_thr, args.threads)
    if args.score_thr is not None and not model.is_detector:
        raise ValueError('--score-thr is for detectors: a segmentor gives every pixel a class.')
    if args.score_thr is None and model.is_detector:
        model.score_thr = max(SCORE_THR, model.metadata['thresholds']['score'])
    return model


def infer(model: OnnxModel, images: list[Path], out: Path) -> int:
    """Predict for each image, whatever becomes of the others; return how many were done."""
    done = 0
    for number, path in enumerate(images, start=1):
        try:
            image_HWC = read_image(path)
            prediction = model.predict(image_HWC)
            write_image(out / 'pictures' / path.name, model.draw(image_HWC, prediction))
            model.save(prediction, image_HWC.shape[:2], out / 'predictions' / path.name)
            done += 1
        except Exception as error:  # no image may keep the others from being done
            print(f'Skipped {path.name}: {error}', file=sys.stderr)
        print(f'\r{number} of {len(images)}', end='', flush=True)
    print()
    return done


def main() -> None:
    args = parse_args()
    try:
        images = find_images(args.source)
        model = open_model(args)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f'infer_onnx: {error}')
    done = infer(model, images, args.out)
    print(f'{done} of {len(images)} done, {len(images) - done} skipped: {args.out}')
    sys.exit(done < len(images))


if __name__ == '__main__':
    main()
