"""Command line of ``run.py``, made from the table of benchmarks."""

import argparse
from pathlib import Path
from typing import Any

import torch
from builders import FAMILIES
from cases import BENCHMARKS

from mminline.apis.precision import PRECISIONS, check_precision

QUICK = dict(shape=[128, 160], sides=[64, 128], windows=[7], repeats=2, proposals=5)
SMALLEST_SIDE = 32


def parse(arguments: list[str], description: str) -> argparse.Namespace:
    """Read the command line. Without a command it is 'all', so that ``--quick`` is enough."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', metavar='COMMAND')
    for name, benchmark in BENCHMARKS.items():
        limit = f'{benchmark.time_limit:g}'
        _add_command(commands, name, benchmark.description, benchmark.defaults, limit)
    every = 'all of these with their own defaults; the command if none is given'
    each = 'those of each command'
    _add_command(commands, 'all', every, dict(repeats=each), each)
    table = commands.add_parser('table', help='print the tables of finished runs again')
    table.add_argument('files', nargs='+', type=Path, metavar='JSON', help='finished runs')
    if not {'-h', '--help', *commands.choices} & set(arguments[:1]):
        arguments = ['all', *arguments]
    args = parser.parse_args(arguments)
    if getattr(args, 'device', 'cpu') == 'cuda' and not torch.cuda.is_available():
        parser.error('--device has to be cpu: PyTorch sees no CUDA device here')
    try:
        for word in getattr(args, 'precision', None) or ():
            check_precision(word, args.device)
    except ValueError as error:
        parser.error(f'--{error}')
    return args


def choose(args: argparse.Namespace, command: str) -> dict[str, Any]:
    """Options of a command: the user's value, else that of --quick, else the default."""
    chosen = BENCHMARKS[command].defaults | {
        name: value
        for name, value in (QUICK if args.quick else {}).items()
        if name in BENCHMARKS[command].defaults
    }
    given = {name: getattr(args, name, None) for name in chosen}
    return chosen | {name: value for name, value in given.items() if value is not None}


def count(text: str) -> int:
    """Read a number of at least 1."""
    return _whole_number(text, least=1)


def side(text: str) -> int:
    """Read a side of an image."""
    return _whole_number(text, least=SMALLEST_SIDE)


def _whole_number(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f'has to be a whole number from {least} on, got {text}')
    return int(text)


# Options with a type or a help text of their own; those of others follow from the default.
OPTIONS = dict(
    shape=dict(help='height and width of the image', type=side, nargs=2, metavar=('H', 'W')),
    windows=dict(help='sides of the windows', type=count, nargs='+', metavar='SIDE'),
    sides=dict(help='sides of the square images', type=side, nargs='+', metavar='SIDE'),
    batch=dict(help='images per batch', type=count, metavar='B'),
    compile=dict(help='whether to add ours through torch.compile', action='store_true'),
    proposals=dict(help='boxes for the box head', type=count, metavar='N'),
    precision=dict(help='precisions of the models', choices=PRECISIONS, nargs='+'),
    families=dict(help='families of backbones', choices=FAMILIES, nargs='+'),
    repeats=dict(help='rounds of timing', type=count, metavar='N'),
)


def _add_command(
    commands: argparse._SubParsersAction,
    command: str,
    description: str,
    defaults: dict[str, Any],
    time_limit: str,
) -> None:
    parser = commands.add_parser(command, help=description, description=description)
    for name, default in defaults.items():
        option = OPTIONS.get(name) or _option_like(default)
        text = f'{option.get("help", "")} (default: {_words(default)})'
        # None means not given: the default is chosen later, because it depends on --quick.
        parser.add_argument(f'--{name}', **option | dict(help=text, default=None))
    add = parser.add_argument
    add('--quick', action='store_true', help='tiny images and two rounds, to see that it works')
    text = 'time for a candidate in a case: slow ones get fewer rounds, and one that needs longer '
    text += f'for a single call is left out (default: {time_limit})'
    add('--time-limit', type=float, metavar='SECONDS', help=text)
    text = 'largest difference of results that have to agree, relative to the largest value '
    text += '(default: %(default)g)'
    add('--tolerance', type=float, default=1e-4, metavar='T', help=text)
    text = 'measure only candidates of these names; ratios are to the first of them'
    add('--only', nargs='+', metavar='NAME', help=text)
    add('--no-memory', action='store_true', help='measure times only, which takes half as long')
    text = 'threads of PyTorch on the CPU (default: %(default)s)'
    add('--threads', type=count, default=torch.get_num_threads(), metavar='N', help=text)
    add('--device', choices=['cpu', 'cuda'], default='cpu', help='(default: %(default)s)')
    text = 'folder for COMMAND.json and COMMAND.png (default: %(default)s)'
    add('--out', type=Path, default=Path('work_dirs/benchmarks'), metavar='FOLDER', help=text)


def _option_like(default: Any) -> dict[str, Any]:
    if isinstance(default, bool):
        return dict(action='store_true')
    if isinstance(default, list):
        return dict(type=type(default[0]), nargs='+')
    return dict(type=type(default))


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    return ' '.join(map(str, value)) if isinstance(value, list) else str(value)
