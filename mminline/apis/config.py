"""Configs: read them, find the data set a model is tested on, leave downloads out."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

PRETRAINED = ('Pretrained', 'PretrainedInit')


def read_config(path: str | Path, cfg_options: Mapping[str, Any] | None = None) -> Config:
    """Read a config file.

    Args:
        path: The file.
        cfg_options: Settings to change, by dotted name.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f'There is no config {os.fspath(path)}.')
    config = Config.fromfile(path)
    config.merge_from_dict(dict(cfg_options or {}))
    return config


def get_test_dataset(config: Config) -> ConfigDict:
    """Return the settings of the data set that a model is tested on, the first of several.

    Wrappers such as ``ConcatDataset`` have it as ``dataset`` or in a list ``datasets``.
    """
    dataset = (config.get('test_dataloader') or {}).get('dataset') or {}
    while dataset and 'pipeline' not in dataset:
        wrapped = [dataset.get('dataset'), *(dataset.get('datasets') or [])]
        dataset = next(filter(None, wrapped), None)
    if not dataset:
        raise ValueError(
            f'{config.filename or "the config"} has to have a test_dataloader whose dataset has a '
            'pipeline, and has none'
        )
    return dataset


def drop_pretrained(settings: Any) -> Any:
    """Copy settings of a model without what would load weights while it is built or initialised.

    That is ``pretrained`` and each ``init_cfg`` of the kind Pretrained, in any part of the model.
    """
    if isinstance(settings, Mapping):
        return ConfigDict({name: _without_weights(name, value) for name, value in settings.items()})
    if isinstance(settings, list | tuple):
        return type(settings)(drop_pretrained(part) for part in settings)
    return settings


def _without_weights(name: str, value: Any) -> Any:
    if name == 'pretrained' and isinstance(value, str | bool):
        return False if isinstance(value, bool) else None
    if name == 'init_cfg':
        if isinstance(value, list | tuple):
            return [cfg for cfg in value if not _is_pretrained(cfg)] or None
        return None if _is_pretrained(value) else value
    return drop_pretrained(value)


def _is_pretrained(init_cfg: Mapping | None) -> bool:
    kind = (init_cfg or {}).get('type', '')
    return getattr(kind, '__name__', str(kind)).split('.')[-1] in PRETRAINED
