"""Draw where a sliding window changes the prediction of a segmentor.

    python benchmarks/draw_seams.py CONFIG CHECKPOINT --out seams.png

The image is a mosaic of Shapes scenes. It is predicted whole (mminline.large) and by mmseg's
sliding window, by the same model. The lower row of the picture is a part of the upper one.
For information, pixels are counted that mmseg gives another class if it sees a part of odd size
whole, without padding.
"""

import argparse
import tempfile
from pathlib import Path

import cv2
import mmcv
import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.dataset import pseudo_collate
from sliding import slide

from mminline.apis import build_test_pipeline, init_model
from mminline.datasets import write_shapes
from mminline.large import predict
from mminline.large.predictor import show_progress

DETAIL = 512
ODD_SHAPE = (1000, 1333)
PICTURE = 512


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config of a segmentor for Shapes')
    parser.add_argument('checkpoint', help='its trained weights')
    parser.add_argument('--side', type=int, default=8192, help='of the mosaic (default: 8192)')
    parser.add_argument('--scene', type=int, default=128, help='side of a scene (default: 128)')
    parser.add_argument('--crop', type=int, default=128, help='side of the window (default: 128)')
    parser.add_argument('--out', type=Path, default=Path('seams.png'), help='picture')
    return parser.parse_args()


def draw_mosaic(side: int, scene: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw scenes side by side; return the image and the class of each pixel."""
    scenes = -(-side // scene)
    with tempfile.TemporaryDirectory() as folder:
        write_shapes(folder, train=1, val=scenes**2, size=scene)
        mosaics = []
        for kind, flag in (('images', 'color'), ('semantic', 'unchanged')):
            files = sorted(Path(folder, kind, 'val').iterdir())
            tiles = [mmcv.imread(file, flag) for file in files]
            rows = [np.concatenate(tiles[row * scenes :][:scenes], axis=1) for row in range(scenes)]
            mosaics.append(np.concatenate(rows)[:side, :side])
    return mosaics[0], mosaics[1]


def prepare(model: torch.nn.Module, image_HWC: np.ndarray) -> dict:
    """Make the batch that ``test_step`` takes, without resizing."""
    return pseudo_collate([build_test_pipeline(model.cfg, full_size=True)(image_HWC)])


def predict_by_window(model: torch.nn.Module, image_HWC: np.ndarray, crop: int) -> np.ndarray:
    """Predict by a sliding window."""
    data = model.data_preprocessor(prepare(model, image_HWC))
    meta = data['data_samples'][0].metainfo
    return slide(model, data['inputs'], meta, crop, show_progress).numpy()


def count_without_padding(model: torch.nn.Module, image_HWC: np.ndarray) -> int:
    """Count the pixels that mmseg gives another class than we do, if it does not pad the image.

    Sides that are no multiples of 32 have maps whose ratios are not those of their strides, and
    heads resize by them.
    """
    model.data_preprocessor.test_cfg = None
    with torch.inference_mode():
        (sample,) = model.test_step(prepare(model, image_HWC))
    return int((sample.pred_sem_seg.data[0].numpy() != predict(model, image_HWC)).sum())


def reduce(picture: np.ndarray) -> np.ndarray:
    """Average blocks of pixels, so that a large picture can be looked at."""
    size = (PICTURE, PICTURE)
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)


def main() -> None:
    args = parse_args()
    # Without the faster heads: they round by the position of a pixel in the window.
    model = init_model(args.config, args.checkpoint, 'cpu', fast=False)
    image_HWC, label_HW = draw_mosaic(args.side, args.scene)
    whole_HW = predict(model, image_HWC, report=show_progress)
    slide_HW = predict_by_window(model, image_HWC, args.crop)
    different_HW = whole_HW != slide_HW
    palette = np.array(model.dataset_meta['palette'], np.uint8)
    panels = {
        f'mosaic of {args.side} px': cv2.cvtColor(image_HWC, cv2.COLOR_BGR2RGB),
        'whole, in parts': palette[whole_HW],
        f'sliding window of {args.crop} px': palette[slide_HW],
        f'different: {different_HW.mean():.1%}': np.where(different_HW, 0, 255).astype(np.uint8),
    }
    figure = Figure(figsize=(12, 6.4), layout='tight')
    first = (args.side // 2 // args.scene) * args.scene
    detail = (slice(first, first + DETAIL),) * 2
    for axes, (title, picture) in zip(figure.subplots(2, 4).T, panels.items(), strict=True):
        for axis, part in zip(axes, (reduce(picture), picture[detail]), strict=True):
            axis.imshow(part, cmap='gray', vmin=0, vmax=255, interpolation='nearest')
            axis.set_axis_off()
        axes[0].set_title(title)
    figure.savefig(args.out, dpi=110)
    print(f'{different_HW.sum()} of {different_HW.size} pixels differ: {args.out}')
    for name, classes_HW in (('whole', whole_HW), ('sliding window', slide_HW)):
        print(f'{name}: {(classes_HW == label_HW).mean():.2%} of the pixels have the right class')
    odd_HWC = image_HWC[: ODD_SHAPE[0], : ODD_SHAPE[1]]
    height, width = odd_HWC.shape[:2]
    count = count_without_padding(model, odd_HWC)
    print(
        f'{width} x {height} px: {count} of {height * width} pixels differ from mmseg '
        'without padding'
    )


if __name__ == '__main__':
    main()
