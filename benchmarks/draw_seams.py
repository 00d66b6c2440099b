"""Draw where a sliding window changes the prediction of a segmentor.

    python benchmarks/draw_seams.py CONFIG CHECKPOINT --out seams.png

The image is a mosaic of Shapes scenes. It is predicted whole (mminline.large) and by mmseg's
sliding window, by the same model.
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

from mminline.apis import build_test_pipeline, init_model
from mminline.datasets import write_shapes
from mminline.large import predict


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config of a segmentor for Shapes')
    parser.add_argument('checkpoint', help='its trained weights')
    parser.add_argument('--scenes', type=int, default=6, help='scenes a side (default: 6)')
    parser.add_argument('--crop', type=int, default=128, help='side of the window (default: 128)')
    parser.add_argument('--out', type=Path, default=Path('seams.png'), help='picture')
    return parser.parse_args()


def draw_mosaic(scenes: int, size: int = 192) -> np.ndarray:
    """Draw scenes side by side."""
    with tempfile.TemporaryDirectory() as folder:
        write_shapes(folder, train=1, val=scenes**2, size=size)
        files = sorted(Path(folder, 'images', 'val').iterdir())
        images = [mmcv.imread(file) for file in files]
    rows = [np.concatenate(images[row * scenes :][:scenes], axis=1) for row in range(scenes)]
    return np.concatenate(rows)


@torch.inference_mode()
def slide(model: torch.nn.Module, image_HWC: np.ndarray, crop: int) -> np.ndarray:
    """Predict by a sliding window that overlaps by a third, mmseg's usual setting."""
    model.test_cfg.update(mode='slide', crop_size=(crop, crop), stride=(crop * 2 // 3,) * 2)
    prepare = build_test_pipeline(model.cfg, full_size=True)
    (sample,) = model.test_step(pseudo_collate([prepare(image_HWC)]))
    return sample.pred_sem_seg.data[0].numpy()


def main() -> None:
    args = parse_args()
    model = init_model(args.config, args.checkpoint, 'cpu')
    image_HWC = draw_mosaic(args.scenes)
    whole_HW, slide_HW = predict(model, image_HWC), slide(model, image_HWC, args.crop)
    different_HW = whole_HW != slide_HW
    palette = np.array(model.dataset_meta['palette'], np.uint8)
    figure = Figure(figsize=(12, 3.4), layout='tight')
    panels = {
        'image': cv2.cvtColor(image_HWC, cv2.COLOR_BGR2RGB),
        'whole, in parts': palette[whole_HW],
        f'sliding window of {args.crop} px': palette[slide_HW],
        f'different: {different_HW.mean():.1%}': ~different_HW,
    }
    for axes, (title, picture) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        axes.imshow(picture, cmap='gray', interpolation='nearest')
        axes.set_title(title)
        axes.set_axis_off()
    figure.savefig(args.out, dpi=120)
    height, width = different_HW.shape
    print(f'{different_HW.sum()} of {height * width} pixels differ: {args.out}')


if __name__ == '__main__':
    main()
