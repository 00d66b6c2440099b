"""Measure the page of tools/explore.py: seconds from a click to its pictures, over HTTP.

    python benchmarks/explore.py
    python benchmarks/explore.py CONFIG --size 640 400

A model with random weights sees an image of noise. Then points are looked at in each layer, as a
click does, and layers are changed: timed until all pictures have arrived, by gradio_client on this
machine. A browser draws them in addition. The first prediction is timed by itself. The numbers of a
layer, locality and confusion, come after the pictures and are timed apart.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from machine import describe_machine, machine_line

from mminline.apis import init_model
from mminline.explore import ExplorableModel, Explorer
from mminline.explore.server import HOST, running_page

CONFIG = 'configs/detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('config', nargs='?', default=CONFIG, help='(default: %(default)s)')
    add('--size', type=int, nargs=2, default=(1280, 800), metavar=('WIDTH', 'HEIGHT'))
    add('--clicks', type=int, default=3, help='in each layer (default: %(default)s)')
    return parser.parse_args()


def seconds(function: Callable, *args, **options) -> float:
    start = time.perf_counter()
    function(*args, **options)
    return time.perf_counter() - start


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def measure(explorer: Explorer, width: int, height: int, clicks: int) -> dict[str, list[float]]:
    """Seconds of each kind of answer."""
    from gradio_client import Client

    times = {'first prediction': [], 'layer change': [], 'click': [], 'locality and confusion': []}
    generator = np.random.default_rng(0)
    with running_page(explorer, free_port()) as address, tempfile.TemporaryDirectory() as folder:
        client = Client(address, verbose=False, download_files=folder)
        first = (0, explorer.layer_names[-1], 'mean', 0.3)
        times['first prediction'].append(seconds(client.predict, *first, api_name='/pick'))
        for layer in explorer.layer_names:
            for number in range(1 + clicks):
                point = int(generator.integers(width)), int(generator.integers(height))
                look = (layer, 'mean', 0.3, *point)
                kind = 'click' if number else 'layer change'
                times[kind].append(seconds(client.predict, *look, api_name='/look'))
            spent = seconds(client.predict, layer, api_name='/measure')
            times['locality and confusion'].append(spent)
    return times


def main() -> None:
    args = parse_args()
    width, height = args.size
    torch.manual_seed(0)
    model = ExplorableModel('model', init_model(args.config, device='cpu'))
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, 'noise.png')
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        cv2.imwrite(str(image), noise)
        times = measure(Explorer([model], [image]), width, height, args.clicks)
    print(machine_line(describe_machine('cpu')))
    print(f'{Path(args.config).stem}, {width} x {height}, layers {", ".join(model.layers)}\n')
    print('| seconds | median | longest | answers |\n| :-- | --: | --: | --: |')
    for kind, all_seconds in times.items():
        median, longest = statistics.median(all_seconds), max(all_seconds)
        print(f'| {kind} | {median:.2f} | {longest:.2f} | {len(all_seconds)} |')


if __name__ == '__main__':
    main()
