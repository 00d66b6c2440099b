"""Check an installation: versions, known troubles, and the layers on your device.

    python tools/check_env.py
    python tools/check_env.py --device cuda --no-compile

prints versions and devices, then troubles that are known with their cures, then a table: a block in
every form and precision, and blocks with windows and class tokens; the largest difference from
explicit weights in float64 (relative to the standard deviation), and the time beside the same block
with softmax attention. Half precision is that of autocast. The exit code is 0 if nothing serious is
wrong.
"""

import argparse
import sys

import torch
from mmengine.device import get_device

from mminline.diagnostics import check_forms, collect_versions, find_troubles
from mminline.diagnostics.versions import describe_devices


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--device', default=get_device(), help='default: %(default)s')
    parser.add_argument(
        '--grid',
        nargs=2,
        type=int,
        default=(48, 64),
        metavar=('H', 'W'),
        help='height and width of the grid of tokens (default: 48 64)',
    )
    parser.add_argument(
        '--no-compile', action='store_true', help='leave out torch.compile, which takes a minute'
    )
    return parser.parse_args()


def print_versions() -> None:
    for name, version in collect_versions().items():
        print(f'{name:22}{version}')
    print(*describe_devices(), sep='\n')


def print_troubles() -> bool:
    """Print known troubles; return whether one of them is serious."""
    troubles = find_troubles()
    print('\nTroubles:' if troubles else '\nNo known trouble.')
    for trouble in troubles:
        print(f'- {trouble.text}\n  {trouble.cure}')
    return any(trouble.is_serious for trouble in troubles)


def print_forms(args: argparse.Namespace) -> bool:
    """Print a row for each form; return whether one of them is wrong or fails."""
    print(f'\nBlock of 64 channels, grid of {args.grid[0]} x {args.grid[1]}, on {args.device}:')
    print(f'{"precision":12}{"form":16}{"difference":>12}{"ms":>10}')
    is_bad = False
    for result in check_forms(args.device, tuple(args.grid), not args.no_compile):
        difference = '' if result.difference is None else f'{result.difference:.1e}'
        time = '' if result.milliseconds is None else f'{result.milliseconds:.2f}'
        verdict = '' if result.is_good else f'  {result.error or "WRONG"}'
        precision = str(result.dtype).removeprefix('torch.')
        print(f'{precision:12}{result.form:16}{difference:>12}{time:>10}{verdict}', flush=True)
        is_bad |= not result.is_good
    return is_bad


def main() -> None:
    args = parse_args()
    try:
        torch.empty(0, device=args.device)
    except (AssertionError, RuntimeError) as error:
        sys.exit(f'--device {args.device} cannot be used: {str(error).splitlines()[0]}')
    print_versions()
    is_serious = print_troubles()
    sys.exit(print_forms(args) or is_serious)


if __name__ == '__main__':
    main()
