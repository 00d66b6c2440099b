"""Measure the memory of processes that share an image, and compare their results.

    python benchmarks/slabs.py
    python benchmarks/slabs.py --side 4096 --processes 1 2 4

predict   class map of SemanticFPN with InLine-PVT-T, 150 classes, by mminline.large.predict
train     forward and backward pass of the backbone alone, at half the side

Weights and image are random. Peak is the highest rise of the resident memory of a process above
model and input. The table goes to work_dirs/benchmarks/slabs.json too. Linux only.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from machine import describe_machine, machine_line
from memory import read_kilobytes
from mmengine.config import Config

import mminline
from mminline import large
from mminline.apis import init_model
from mminline.execution.slabs import even_edges

CONFIG = 'segmentation/semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py'
WARM_UP_SIDE = 128


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--side', type=int, default=2048, help='of the image (default: 2048)')
    parser.add_argument(
        '--processes', type=int, nargs='+', default=[1, 2], help='how many (default: 1 2)'
    )
    parser.add_argument('--worker', type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure_peak(call: Callable[[], object]) -> tuple[object, int]:
    """Return the result of a call, and how far the memory of this process rose, in bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    Path('/proc/self/clear_refs').write_text('5')
    before = read_kilobytes('/proc/self/status', 'VmRSS')
    result = call()
    return result, 1024 * (read_kilobytes('/proc/self/status', 'VmHWM') - before)


def predict(model: torch.nn.Module, side: int) -> np.ndarray | None:
    image_HWC = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    with mminline.spatial_parallel():
        return large.predict(model, image_HWC)


def train(backbone: torch.nn.Module, side: int) -> None:
    edges = even_edges(side, dist.get_world_size())
    rows = edges[dist.get_rank() + 1] - edges[dist.get_rank()]
    with mminline.spatial_parallel():
        sum(each.square().mean() for each in backbone(torch.randn(1, 3, rows, side))).backward()


def work(side: int, folder: Path) -> None:
    """Measure as one of several processes, and leave the figures in a folder."""
    dist.init_process_group('gloo')
    torch.manual_seed(0)
    config = Config.fromfile(Path(__file__).parents[1] / 'configs' / CONFIG)
    config.model.backbone.init_cfg = None
    config.pop('test_dataloader')
    model = init_model(config, device='cpu')
    figures = {}
    predict(model, WARM_UP_SIDE)
    classes_HW, figures['predict'] = measure_peak(lambda: predict(model, side))
    if classes_HW is not None:
        np.save(folder / 'classes.npy', classes_HW)
    backbone = model.backbone.train()
    train(backbone, WARM_UP_SIDE)
    _, figures['train'] = measure_peak(lambda: train(backbone, side // 2))
    (folder / f'{dist.get_rank()}.json').write_text(json.dumps(figures))
    dist.barrier()


def run_workers(count: int, side: int, folder: Path) -> dict:
    """Start processes; return the highest peak of each measurement."""
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone']
    command += [f'--nproc_per_node={count}', __file__, f'--side={side}', f'--worker={folder}']
    # Fixed: glibc would otherwise keep memory for later, more or less of it from run to run.
    settings = dict(OMP_NUM_THREADS='1', MALLOC_MMAP_THRESHOLD_='1048576')
    subprocess.run(command, check=True, env={**os.environ, **settings})
    peaks = [json.loads((folder / f'{rank}.json').read_text()) for rank in range(count)]
    return {name: max(peak[name] for peak in peaks) for name in peaks[0]}


def main() -> None:
    args = parse_args()
    if args.worker:
        return work(args.side, args.worker)
    rows, expected = [], None
    for count in args.processes:
        with tempfile.TemporaryDirectory() as folder:
            row = dict(processes=count, **run_workers(count, args.side, Path(folder)))
            classes_HW = np.load(Path(folder) / 'classes.npy')
        expected = classes_HW if expected is None else expected
        row['differing_pixels'] = int((classes_HW != expected).sum())
        rows.append(row)
    machine = describe_machine('cpu')
    print(machine_line(machine))
    print(f'{args.side} x {args.side} px, peak of a process in MB')
    print('| processes | predict | train | differing pixels |\n| --: | --: | --: | --: |')
    for row in rows:
        peaks = [f'{row[name] / 1e6:.0f}' for name in ('predict', 'train')]
        print(f'| {row["processes"]} | {" | ".join(peaks)} | {row["differing_pixels"]} |')
    out = Path('work_dirs/benchmarks/slabs.json')
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(dict(machine=machine, side=args.side, rows=rows)))


if __name__ == '__main__':
    main()
