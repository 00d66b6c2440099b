"""What training, testing and inference share: options, the config, errors that say what to do."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import URLError

from mmengine.config import Config, ConfigDict, DictAction
from mmengine.device import get_device
from torch import Tensor, nn

import _processes
import mminline  # noqa: F401  its import lets torch read checkpoints of mmengine

# Where the data comes from that shipped configs look for.
SOURCES = {
    'data/coco': 'COCO 2017 (train2017, val2017 and annotations) is at '
    'https://cocodataset.org/#download',
    'data/ade': 'ADE20K is at '
    'http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip, to be unpacked there',
    'data/shapes': 'Shapes is drawn by tools/make_shapes.py --root data/shapes',
}
FROM_SCRATCH = 'To train from random weights: --cfg-options model.backbone.init_cfg=None.'


def make_parser(description: str) -> argparse.ArgumentParser:
    """The options of every program that reads a config."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config file, of a detector or a segmentor')
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
    """The options that training and testing have."""
    parser = make_parser(description)
    parser.add_argument(
        '--work-dir', help='folder for logs and checkpoints (default: work_dirs/CONFIG)'
    )
    parser.add_argument('--amp', action='store_true', help='mixed precision, on a GPU')
    _processes.add_options(parser)
    return parser


def read_config(args: argparse.Namespace) -> Config:
    """Read the config, with the changes of the command line."""
    if not Path(args.config).is_file():
        sys.exit(f'There is no config {args.config}.')
    config = Config.fromfile(args.config)
    config.merge_from_dict(args.cfg_options)
    return config


def load_config(args: argparse.Namespace) -> Config:
    """Read the config and put the options of training and testing into it."""
    config = read_config(args)
    _processes.check_launcher(args)
    config.launcher = args.launcher
    config.work_dir = (
        args.work_dir or config.get('work_dir') or f'work_dirs/{Path(args.config).stem}'
    )
    if get_device() == 'cpu':
        if args.amp:
            sys.exit('--amp needs a GPU, and there is none: leave it out.')
        _adapt_to_cpu(config)
    return config


def _adapt_to_cpu(config: Config) -> None:
    """Do without what exists on GPUs only."""
    _replace_sync_bn(config.model)
    if config.launcher != 'none':
        _processes.join_without_gpu(config)


def _replace_sync_bn(settings: object) -> None:
    """Make batch norms forget other processes."""
    if isinstance(settings, dict):
        if settings.get('type') == 'SyncBN':
            settings['type'] = 'BN'
        settings = settings.values()
    if not isinstance(settings, str) and hasattr(settings, '__iter__'):
        for part in settings:
            _replace_sync_bn(part)


def check_data(config: Config, *splits: str) -> None:
    """End the program if a data set is not where the config says.

    Args:
        config: The config.
        splits: Which of 'train', 'val' and 'test' will be read.
    """
    for split in splits:
        for path in _data_paths(config, split):
            if '://' not in path and not Path(path).exists():
                sources = [
                    f'It belongs in {folder}: {source}. '
                    for folder, source in SOURCES.items()
                    if Path(folder) in Path(path).parents
                ]
                sys.exit(
                    f'The {split} data is not there: {path}. {"".join(sources)}For data in another '
                    f'place make a link, or change data_root in {split}_dataloader and ann_file '
                    'in the evaluators.'
                )


def _data_paths(config: Config, split: str) -> Iterator[str]:
    """Files and folders that a split reads."""
    if loader := config.get(f'{split}_dataloader'):
        yield from _dataset_paths(loader.dataset)
    evaluators = config.get(f'{split}_evaluator') or []
    for evaluator in evaluators if isinstance(evaluators, list) else [evaluators]:
        if evaluator.get('ann_file'):
            yield evaluator.ann_file


def _dataset_paths(dataset: ConfigDict) -> Iterator[str]:
    for wrapped in [dataset.get('dataset'), *(dataset.get('datasets') or [])]:
        if wrapped:
            yield from _dataset_paths(wrapped)
    if dataset.get('backend_args') is None:  # otherwise a storage of its own kind
        for name in [dataset.get('ann_file'), *(dataset.get('data_prefix') or {}).values()]:
            if name:
                yield os.path.join(dataset.get('data_root') or '', name)


def check_checkpoint(checkpoint: str) -> None:
    """End the program if a checkpoint is not there."""
    if '://' not in checkpoint and not Path(checkpoint).is_file():
        sys.exit(f'There is no checkpoint {checkpoint}.')


def check_whole(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """End the program if weights leave parts of a model at random, as those of a bare backbone do.

    Args:
        model: The model.
        weights: Its weights by name.
        source: Where they come from, for the message.
    """
    misfits = [
        name if name not in weights else f'{name} ({tuple(value.shape)} is wanted)'
        for name, value in sorted(model.state_dict().items())
        if name not in weights or weights[name].shape != value.shape
    ]
    if misfits:
        sys.exit(
            f'{source} has to hold the whole model, and {len(misfits)} of its tensors are not '
            f'there, or have another shape: {", ".join(misfits[:5])}'
            f'{", ..." if len(misfits) > 5 else "."}'
        )


@contextlib.contextmanager
def readable_errors(config: Config) -> Iterator[None]:
    """End the program with a sentence where the user can act: no weights, no file, Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print(f'\nInterrupted. What was saved is in {config.work_dir}.', file=sys.stderr)
        sys.exit(130)
    except URLError as error:
        weights = ', '.join(_weights(config)) or 'a file'
        sys.exit(
            f'{weights} cannot be fetched: {error.reason}. To go on, download it on any machine '
            f'and add --cfg-options model.backbone.init_cfg.checkpoint=FILE. {FROM_SCRATCH}'
        )
    except ConnectionError as error:
        sys.exit(f'{error}. {FROM_SCRATCH}')
    except FileNotFoundError as error:
        sys.exit(str(error))


def _weights(config: Config) -> list[str]:
    """Web addresses of weights that a run begins with."""
    initial = config.model.get('backbone', {}).get('init_cfg')
    names = [config.get('load_from'), initial.get('checkpoint') if initial else None]
    return [name for name in names if name and '://' in name]
