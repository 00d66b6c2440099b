"""Measure tools/infer.py --full-size on a random image: seconds, and memory of the whole process.

    python benchmarks/full_size.py segmentation/semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py
    python benchmarks/full_size.py detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py --side 4096
    python benchmarks/full_size.py CONFIG --processes 2 --threads 1

CONFIG is one of configs/, with random weights. The image is a tiled TIFF. The class map of a
segmentor goes straight to a file. Memory is the highest resident memory of a process, with Python
and its libraries; of several processes, that of the largest. Linux only.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from machine import describe_machine, machine_line

ROOT = Path(__file__).resolve().parents[1]
TILE = 256


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='file of configs/, with its folder')
    parser.add_argument('--side', type=int, default=2048, help='of the image (default: 2048)')
    parser.add_argument('--processes', type=int, default=1, help='that share it (default: 1)')
    parser.add_argument(
        '--threads', type=int, default=os.cpu_count(), help='of each (default: %(default)s)'
    )
    parser.add_argument('--proposals', type=int, default=1000, help='regions (default: 1000)')
    parser.add_argument('--out', type=Path, help='keep class map or results here')
    return parser.parse_args()


def write_model(config: str, proposals: int, path: Path) -> None:
    import builders
    import torch

    torch.set_num_threads(1)
    kind, name = config.split('/')
    if kind == 'segmentation':
        model = builders.segmentor(name)
    else:
        model = builders.detector(name, proposals, fast=False)
    torch.save(dict(state_dict=model.state_dict()), path)


def write_image(side: int, path: Path) -> None:
    from tifffile import TiffWriter

    def tiles() -> Iterator[np.ndarray]:
        generator = np.random.default_rng(0)
        for _ in range((-(-side // TILE)) ** 2):
            yield generator.integers(0, 256, (TILE, TILE, 3), np.uint8)

    with TiffWriter(path) as writer:
        writer.write(tiles(), shape=(side, side, 3), dtype='uint8', tile=(TILE, TILE),
                     photometric='rgb')  # fmt: skip


def prepare(function: Callable, *arguments: object) -> None:
    """Call a function in a process of its own, whose memory is not counted."""
    process = multiprocessing.get_context('spawn').Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f'{function.__name__} failed, see above')


def infer(args: argparse.Namespace, folder: Path) -> tuple[float, int]:
    """Run the tool; return the seconds that it took, and the bytes of its largest process."""
    program = [sys.executable]
    sharing = []
    if args.processes > 1:
        program += ['-m', 'torch.distributed.run', '--standalone']
        program += [f'--nproc_per_node={args.processes}']
        sharing = ['--launcher', 'pytorch']
    is_segmentor = args.config.startswith('segmentation')
    out = args.out or folder / ('classes.npy' if is_segmentor else 'results')
    command = [*program, ROOT / 'tools' / 'infer.py', ROOT / 'configs' / args.config]
    command += [folder / 'model.pth', folder / 'image.tif', '--full-size', '--large', 'on']
    command += ['--device', 'cpu', '--out', out, *sharing]
    start = time.monotonic()
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    process = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit('tools/infer.py failed, see above')
    return time.monotonic() - start, 1024 * usage.ru_maxrss


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(write_model, args.config, args.proposals, folder / 'model.pth')
        prepare(write_image, args.side, folder / 'image.tif')
        seconds, peak_bytes = infer(args, folder)
    print(machine_line(describe_machine('cpu')))
    print(
        f'{args.config}, {args.side} x {args.side} px, {args.processes} process(es) of '
        f'{args.threads} thread(s): {seconds:.0f} s, {peak_bytes / 1e9:.2f} GB a process'
    )


if __name__ == '__main__':
    main()
