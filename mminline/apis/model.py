"""Build the model of a config, ready to run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, HOOKS, MODELS, init_default_scope
from torch import nn

from .acceleration import accelerate
from .config import drop_pretrained, get_test_dataset, read_config
from .precision import check_precision, set_precision
from .weights import load_weights


def init_model(
    config: str | Path | Config,
    checkpoint: str | Path | None = None,
    device: str | torch.device | None = None,
    precision: str = 'float32',
    *,
    pretrained: bool = False,
    fast: bool = True,
) -> nn.Module:
    """Build a detector or segmentor and fill it: completely from a checkpoint, or at random.

    Nothing is downloaded unless ``checkpoint`` is an address or ``pretrained`` is set. The model
    is in evaluation mode and knows its config as ``cfg`` and its classes as ``dataset_meta``.

    Args:
        config: Config, or its file; it is left as it is.
        checkpoint: File or address of the weights of the whole model; None for random ones.
        device: Where the model runs; None for a GPU if there is one.
        precision: 'float32', 'bfloat16' or, on a GPU, 'float16', see ``set_precision``.
        pretrained: Without a checkpoint, load what training starts from: the weights that the
            config names for the backbone.
        fast: Whether neck and heads run in their faster form too, see ``accelerate``.
    """
    device = torch.device(device or get_device())
    check_precision(precision, device.type)
    config = config if isinstance(config, Config) else read_config(config)
    if 'model' not in config:
        raise ValueError(f'{config.filename or "the config"} has to have a model, and has none')
    init_default_scope(config.get('default_scope', 'mmengine'))
    starts_pretrained = pretrained and checkpoint is None
    settings = config.model if starts_pretrained else drop_pretrained(config.model)
    model = revert_sync_batchnorm(MODELS.build(settings))
    saved = {}
    if checkpoint is not None:
        saved = load_weights(model, checkpoint)
    else:
        with contextlib.nullcontext() if starts_pretrained else _silence():
            model.init_weights()
    model.cfg = config
    model.dataset_meta = _dataset_meta(config) | saved_meta(saved)
    _prepare(model, config)
    model.to(device).eval()
    set_precision(model, precision)
    if fast:
        accelerate(model, precision)
    return model


def _prepare(model: nn.Module, config: Config) -> None:
    """Let hooks of a config that make the model another one do so, as a runner lets them."""
    for settings in config.get('custom_hooks') or []:
        kind = settings['type']
        name = kind.split('.')[-1] if isinstance(kind, str) else kind.__name__
        if name == 'IgnorePaddingHook':
            HOOKS.build(settings).prepare(model)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep mmengine from naming each parameter that it initialises."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel('WARNING')
    try:
        yield
    finally:
        logger.setLevel(level)


def _dataset_meta(config: Config) -> dict:
    """Classes and colours of the data set that the model is tested on, its files unread."""
    if not config.get('test_dataloader'):
        return {}
    return DATASETS.build(dict(get_test_dataset(config), lazy_init=True)).metainfo


def saved_meta(checkpoint: dict) -> dict:
    """Classes and colours that a checkpoint was trained for; their names were in capitals once."""
    meta = checkpoint.get('meta') or {}
    meta = meta.get('dataset_meta') or {}
    return {name.lower(): value for name, value in meta.items()}
