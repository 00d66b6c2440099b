"""Measure tools/infer.py on large images: seconds of reading, predicting, drawing and writing.

    python benchmarks/pictures.py
    python benchmarks/pictures.py --shape 1080 1920 --images 10

SemanticFPN and Mask R-CNN with InLine-PVT-T and random weights predict a mosaic of Shapes scenes,
resized by their configs and at full size. All is what the tool prints: the mean over the images,
the first of which includes what is done once. The results go to pictures.json in the folder --out.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from draw_seams import draw_mosaic
from full_size import ROOT, prepare, write_model
from machine import describe_machine, machine_line
from tables import markdown

CONFIGS = {
    'SemanticFPN': 'segmentation/semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py',
    'Mask R-CNN': 'detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py',
}
WAYS = {'resized': [], 'full size': ['--full-size', '--large', 'off']}
STEPS = ('read', 'predict', 'draw', 'write')
SCENE = 250  # side of a scene of the mosaic


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--shape', type=int, nargs=2, default=[2250, 4000], metavar=('HEIGHT', 'WIDTH'),
        help='of the images (default: 2250 4000)',
    )  # fmt: skip
    parser.add_argument('--images', type=int, default=3, help='how many (default: 3)')
    parser.add_argument('--proposals', type=int, default=1000, help='regions (default: 1000)')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/benchmarks'))
    return parser.parse_args()


def write_images(shape: list[int], count: int, folder: Path) -> None:
    height, width = shape
    image_HWC, _ = draw_mosaic(max(shape), SCENE)
    for index in range(count):
        cv2.imwrite(str(folder / f'{index}.jpg'), image_HWC[:height, :width])


def infer(config: str, options: list[str], folder: Path) -> dict[str, float]:
    """Run the tool; return the seconds of each step that it prints."""
    command = [sys.executable, ROOT / 'tools' / 'infer.py', ROOT / 'configs' / config]
    command += [folder / 'model.pth', folder / 'images', '--device', 'cpu', '--out', folder / 'out']
    result = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit('tools/infer.py failed, see above')
    line = re.search('Seconds for each image: (.*)', result.stdout).group(1)
    return {step: float(re.search(rf'{step} ([\d.]+)', line).group(1)) for step in STEPS}


def table(rows: list[dict]) -> str:
    """Seconds of each step, and drawing as a share of prediction."""
    lines = [
        (
            f'{row["model"]}, {row["way"]}',
            *(f'{row["seconds"][step]:.2f}' for step in STEPS),
            f'{100 * row["seconds"]["draw"] / row["seconds"]["predict"]:.1f} %',
        )
        for row in rows
    ]
    return markdown([('', *STEPS, 'draw / predict'), *lines])


def main() -> None:
    args = parse_args()
    machine = describe_machine('cpu')
    print(f'{machine_line(machine)}\n', flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / 'images').mkdir()
        write_images(args.shape, args.images, folder / 'images')
        for model, config in CONFIGS.items():
            prepare(write_model, config, args.proposals, folder / 'model.pth')
            for way, options in WAYS.items():
                seconds = infer(config, options, folder)
                shutil.rmtree(folder / 'out')
                rows.append(dict(model=model, way=way, seconds=seconds))
                results = dict(machine=machine, shape=args.shape, images=args.images, rows=rows)
                (args.out / 'pictures.json').write_text(json.dumps(results, indent=1))
                print(f'{model}, {way}: done', flush=True)
    print(f'\n{args.images} images of {args.shape[1]} x {args.shape[0]} px, seconds for each:\n')
    print(table(rows))


if __name__ == '__main__':
    main()
