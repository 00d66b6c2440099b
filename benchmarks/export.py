"""Measure exported detectors against PyTorch.

    python benchmarks/export.py
    python benchmarks/export.py --models nano --shapes 512x512 --profile

Each Mask R-CNN is exported once, with random weights, and compared with mmdet (else the program
ends with an error). File and PyTorch, with the faster neck and heads of init_model, then take turns
on the same images, from the pixels to boxes and masks. The score threshold is set so that about 100
detections are left. --profile also lists the operators that take most time in the file. The results
go to export.json in the folder --out.
"""

import argparse
import collections
import json
import sys
import tempfile
from pathlib import Path

import onnxruntime
import torch

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import builders
from machine import describe_machine, machine_line
from tables import markdown
from timing import summarize, time_call

from mminline.apis import accelerate, init_model, read_config
from mminline.apis.export import ExportedFile, ExportError, export_model
from mminline.apis.export.detector_checking import mosaic

CONFIGS = {
    'nano': 'mask-rcnn_inline-pvt-nano_fpn_shapes.py',
    'tiny': 'mask-rcnn_inline-pvt-t_fpn_1x_coco.py',
}


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    machine = describe_machine('cpu')
    print(f'{machine_line(machine)}\n', flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            try:
                exported = export(name, Path(folder))
            except ExportError as error:
                sys.exit(f'export: {error}')
            for shape in args.shapes:
                rows.append(dict(model=name, shape=shape, **measure(exported, shape, args.repeats)))
                results = dict(machine=machine, rows=rows)
                (args.out / 'export.json').write_text(json.dumps(results, indent=1))
                print(f'{name} at {shape[1]} x {shape[0]} done', flush=True)
                if args.profile:
                    print(profile(exported.path, shape), flush=True)
    print(f'\n{table(rows)}')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--models', nargs='+', default=['nano', 'tiny'], choices=CONFIGS)
    parser.add_argument(
        '--shapes', nargs='+', type=parse_shape, default=[(512, 512), (800, 1280)],
        metavar='WIDTHxHEIGHT', help='sizes of the image (default: 512x512 1280x800)',
    )  # fmt: skip
    parser.add_argument('--repeats', type=int, default=5, help='rounds (default: 5)')
    parser.add_argument('--threads', type=int, default=torch.get_num_threads())
    parser.add_argument('--profile', action='store_true', help='list the slowest operators')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/benchmarks'))
    return parser.parse_args()


def parse_shape(text: str) -> tuple[int, int]:
    """Height and width of a text such as 1280x800."""
    width, height = map(int, text.split('x'))
    return height, width


def export(name: str, folder: Path) -> ExportedFile:
    """Export a Mask R-CNN with random weights, and compare it with mmdet."""
    torch.manual_seed(0)
    model = init_model(
        read_config(builders.CONFIGS / 'detection' / CONFIGS[name]), device='cpu', fast=False
    )
    builders.randomize(model.backbone)
    exported = export_model(model, folder / f'{name}.onnx', shape=(128, 128), verbose=True)
    accelerate(exported.model)  # as init_model does
    return exported


def measure(exported: ExportedFile, shape: tuple[int, int], repeats: int) -> dict:
    """Time file and PyTorch in turn, after a call of each."""
    image = mosaic(shape)
    with exported.reference.at_threshold(0.0):
        threshold = float(exported.reference(image).dets[-1, 4])
    by_file, by_torch = [], []
    with exported.reference.at_threshold(threshold):
        for number in range(repeats + 1):
            seconds = (
                time_call(exported.run, (image, threshold)),
                time_call(exported.reference, (image,)),
            )
            if number:
                by_file.append(seconds[0])
                by_torch.append(seconds[1])
    return dict(file=summarize(by_file, by_torch), torch=summarize(by_torch, None))


def profile(path: Path, shape: tuple[int, int], shown: int = 12) -> str:
    """List the operators in which a file spends its time."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # no warning that score_threshold has a default
    options.intra_op_num_threads = torch.get_num_threads()
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(''))
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    for _ in range(2):
        session.run(None, {'image': mosaic(shape).numpy()})
    events = json.loads(Path(session.end_profiling()).read_text())
    seconds = collections.Counter()
    for event in events:
        if event.get('cat') == 'Node' and event['name'].endswith('_kernel_time'):
            seconds[event['args']['op_name']] += event['dur'] / 2e6
    slowest = [(name, f'{1e3 * part:.0f}') for name, part in seconds.most_common(shown)]
    return markdown([('operator', 'ms'), *slowest])


def table(rows: list[dict]) -> str:
    """Median times, and the ratio of file to PyTorch in the same rounds."""
    header = ('model', 'image', 'file', 'PyTorch', 'ratio')
    lines = [
        (
            row['model'],
            f'{row["shape"][1]} x {row["shape"][0]}',
            *(f'{1e3 * row[name]["median"]:.0f} ms' for name in ('file', 'torch')),
            f'{row["file"]["ratio"]:.2f}',
        )
        for row in rows
    ]
    return markdown([header, *lines])


if __name__ == '__main__':
    main()
