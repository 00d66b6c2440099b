"""Configs of runs: folders, launchers, logs."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.device import get_device

from ..apis import read_config
from .launch import check_launcher, join_without_gpu


def load_run_config(
    path: str | Path,
    cfg_options: Mapping[str, Any] | None = None,
    *,
    work_dir: str | None = None,
    launcher: str = 'none',
    local_rank: int | None = None,
) -> Config:
    """Read a config for training or testing, and join the other processes if there are any.

    Args:
        path: The file.
        cfg_options: Settings to change, by dotted name.
        work_dir: Folder for logs and checkpoints; None for the config's, or work_dirs/CONFIG.
        launcher: What started this process: 'none' or one of ``launch.LAUNCHERS``.
        local_rank: Number of the process on its machine, if the launcher passes it as an option.
    """
    config = read_config(path, cfg_options)
    check_launcher(launcher, local_rank)
    config.launcher = launcher
    config.work_dir = work_dir or config.get('work_dir') or f'work_dirs/{Path(path).stem}'
    if get_device() == 'cpu':
        _replace_sync_bn(config.model)
        if launcher != 'none':
            join_without_gpu(config)
    return config


def _replace_sync_bn(settings: object) -> None:
    """Turn batch norms across processes, which need GPUs, into plain ones."""
    if isinstance(settings, dict):
        if settings.get('type') == 'SyncBN':
            settings['type'] = 'BN'
        settings = settings.values()
    if not isinstance(settings, str) and hasattr(settings, '__iter__'):
        for part in settings:
            _replace_sync_bn(part)


def scale_learning_rate(config: Config) -> None:
    """Let the learning rate follow the number of images at a time."""
    if 'base_batch_size' not in config.get('auto_scale_lr', {}):
        raise ValueError(
            f'--auto-scale-lr needs auto_scale_lr.base_batch_size in {config.filename}: the '
            'number of images at a time that its learning rate is for.'
        )
    config.auto_scale_lr.enable = True


def log_to_tensorboard(config: Config) -> None:
    """Add TensorBoard to what the visualizer of a config writes to."""
    if importlib.util.find_spec('tensorboard') is None:
        raise ModuleNotFoundError(
            '--tensorboard needs a package that is not there: pip install tensorboard'
        )
    visualizer = config.get('visualizer') or dict(type='Visualizer')
    backends = [*(visualizer.get('vis_backends') or []), dict(type='TensorboardVisBackend')]
    config.visualizer = dict(visualizer, vis_backends=backends)
