"""Command-line options that programs share."""

import argparse

from mmengine.config import DictAction

from ..apis import PRECISIONS
from .launch import LAUNCHERS


def make_parser(description: str, optional_config: bool = False) -> argparse.ArgumentParser:
    """Make a parser with the options of every program that reads a config.

    Args:
        description: What the program does.
        optional_config: Whether the config may be left out.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    nargs = '?' if optional_config else None
    parser.add_argument('config', nargs=nargs, help='config file, of a detector or a segmentor')
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        default={},
        metavar='KEY=VALUE',
        help='change settings of the config, such as train_dataloader.batch_size=4',
    )
    return parser


def make_run_parser(description: str) -> argparse.ArgumentParser:
    """Make a parser with the options that training and testing have."""
    parser = make_parser(description)
    parser.add_argument(
        '--work-dir', help='folder for logs and checkpoints (default: work_dirs/CONFIG)'
    )
    parser.add_argument(
        '--launcher',
        choices=['none', *LAUNCHERS],
        default='none',
        help='who started this process, if it is one of several (default: none)',
    )
    # torch.distributed.launch passes it, under either name.
    parser.add_argument('--local-rank', '--local_rank', type=int, help=argparse.SUPPRESS)
    return parser


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--precision``, for programs that run a trained model."""
    parser.add_argument(
        '--precision',
        choices=PRECISIONS,
        default='float32',
        help='precision of the model; float16 needs a GPU (default: %(default)s)',
    )
