"""The command line of the benchmark."""

import argparse
from pathlib import Path
from typing import Any

import torch

# What decides what is measured. A command has the options that stand here.
DEFAULTS = {
    'layer': dict(shape=[800, 1280], batch=1, repeats=30),
    'backbone': dict(shape=[800, 1280], batch=1, repeats=10, compile=False),
    'train': dict(shape=[512, 640], batch=2, repeats=10),
    'scale': dict(sides=[512, 1024, 2048, 4096], batch=1, repeats=5),
    'detector': dict(shape=[800, 1280], batch=1, repeats=5, proposals=1000),
}
QUICK = dict(shape=[128, 160], sides=[64, 128], repeats=2, proposals=20)
SMALLEST_SIDE = 32


def parse(arguments: list[str], description: str) -> argparse.Namespace:
    """Read the command line. Without a command it is 'all', so that ``--quick`` is enough."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', metavar='COMMAND')
    for name, defaults in DEFAULTS.items():
        _add_command(commands, name, defaults)
    _add_command(commands, 'all', dict(repeats='those of each command'))
    table = commands.add_parser('table')
    table.add_argument('files', nargs='+', type=Path, metavar='JSON', help='finished runs')
    if not {'-h', '--help', *commands.choices} & set(arguments[:1]):
        arguments = ['all', *arguments]
    args = parser.parse_args(arguments)
    if getattr(args, 'device', 'cpu') == 'cuda' and not torch.cuda.is_available():
        parser.error('--device has to be cpu: PyTorch sees no CUDA device here')
    return args


def choose(args: argparse.Namespace, command: str) -> dict[str, Any]:
    """Options of a command: what the user says, else what --quick says, else the default."""
    return {
        name: getattr(args, name, None) or (args.quick and QUICK.get(name)) or default
        for name, default in DEFAULTS[command].items()
    }


def _add_command(
    commands: argparse._SubParsersAction, command: str, defaults: dict[str, Any]
) -> None:
    parser = commands.add_parser(command)

    def add(name: str, text: str, **kwargs) -> None:
        if name in defaults:
            # The default itself is chosen later: it depends on --quick.
            default = _words(defaults[name])
            parser.add_argument(f'--{name}', help=f'{text} (default: {default})', **kwargs)

    add('shape', 'height and width of the image', type=_side, nargs=2, metavar=('H', 'W'))
    add('sides', 'sides of the square images', type=_side, nargs='+', metavar='SIDE')
    add('batch', 'images at a time', type=_count, metavar='B')
    add('compile', 'whether to add ours through torch.compile', action='store_true')
    add('proposals', 'boxes for the box head', type=_count, metavar='N')
    add('repeats', 'rounds of timing', type=_count, metavar='N')
    _add_common_options(parser)


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--quick', action='store_true', help='tiny images and two rounds: to see that it works'
    )
    parser.add_argument(
        '--time-limit',
        type=float,
        default=60.0,
        metavar='S',
        help='seconds for a contender in a case: slow ones get fewer rounds, and one that '
        'needs longer for a single call is left out (default: %(default)g)',
    )
    parser.add_argument(
        '--tolerance',
        type=float,
        default=1e-4,
        metavar='T',
        help='largest difference of results that have to agree, relative to the largest value '
        '(default: %(default)g)',
    )
    parser.add_argument(
        '--threads',
        type=_count,
        default=torch.get_num_threads(),
        metavar='N',
        help='threads of PyTorch on the CPU (default: %(default)s)',
    )
    parser.add_argument(
        '--device', choices=['cpu', 'cuda'], default='cpu', help='(default: %(default)s)'
    )
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('work_dirs/benchmarks'),
        metavar='FOLDER',
        help='for COMMAND.json and COMMAND.png (default: %(default)s)',
    )


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    return ' '.join(map(str, value)) if isinstance(value, list) else str(value)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'has to be a whole number from 1 on, got {text}')
    return int(text)


def _side(text: str) -> int:
    if not text.isdecimal() or int(text) < SMALLEST_SIDE:
        raise argparse.ArgumentTypeError(
            f'has to be a whole number from {SMALLEST_SIDE} on, got {text}'
        )
    return int(text)
