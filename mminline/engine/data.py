"""Files that a run reads: look for them before it starts, and say where they come from."""

import os
from collections.abc import Iterator
from pathlib import Path

from mmengine.config import Config, ConfigDict

# Where the data comes from that shipped configs look for.
SOURCES = {
    'data/coco': 'COCO 2017 (train2017, val2017 and annotations) is at '
    'https://cocodataset.org/#download',
    'data/ade': 'ADE20K is at '
    'http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip, to be unpacked there',
    'data/shapes': 'Shapes is drawn by tools/make_shapes.py --root data/shapes',
}


def check_data(config: Config, *splits: str) -> None:
    """Raise a FileNotFoundError if a data set is not where the config says.

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
                raise FileNotFoundError(
                    f'The {split} data is not there: {path}. {"".join(sources)}For data in another '
                    f'place make a link, or change data_root in {split}_dataloader and ann_file '
                    'in the evaluators.'
                )


def check_checkpoint(checkpoint: str | Path) -> None:
    """Raise a FileNotFoundError if a checkpoint is not there; web addresses are not tried."""
    if '://' not in str(checkpoint) and not Path(checkpoint).is_file():
        raise FileNotFoundError(f'There is no checkpoint {checkpoint}.')


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
