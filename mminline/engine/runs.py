"""Train and test what a config describes."""

from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import nn

from ..apis import accelerate, check_complete, set_precision
from ..apis.precision import check_precision
from ..checkpoints import unwrap
from .data import check_checkpoint, check_data
from .fsdp import prepare_fsdp
from .resume import warn_of_single_checkpoint


class CompleteCheckpointHook(Hook):
    """Refuses a checkpoint that leaves parts of the model at random, such as a bare backbone."""

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        check_complete(_unwrap_model(runner), unwrap(checkpoint), runner.cfg.load_from)


def prepare_training(config: Config, amp: bool = False) -> None:
    """Complete the config of a training, and check that its data is there."""
    if amp and get_device() == 'cpu':
        check_precision('bfloat16', 'cpu')
        config.optim_wrapper.type = 'mminline.BFloat16OptimWrapper'
        for name in ('loss_scale', 'dtype', 'use_fsdp'):  # of AmpOptimWrapper
            config.optim_wrapper.pop(name, None)
    elif amp:
        config.optim_wrapper.type = 'AmpOptimWrapper'
        config.optim_wrapper.loss_scale = 'dynamic'
    config.setdefault('runner_type', 'Runner')
    prepare_fsdp(config)
    check_data(config, 'train', 'val')
    warn_of_single_checkpoint(config)


def train(config: Config) -> Runner:
    """Train; the runner that comes back has the model and the log."""
    runner = RUNNERS.build(config)
    runner.train()
    return runner


def prepare_test(config: Config, checkpoint: str | Path, precision: str = 'float32') -> None:
    """Complete the config of a test, and check that checkpoint, data and precision are there."""
    check_checkpoint(checkpoint)
    check_precision(precision, get_device())
    config.load_from = str(checkpoint)
    check_data(config, 'test')


def evaluate(config: Config, precision: str = 'float32') -> dict[str, float]:
    """Test the checkpoint of a config, which has to fill the whole model; return the scores."""
    runner = Runner.from_cfg(config)
    model = _unwrap_model(runner)
    set_precision(model, precision)
    accelerate(model, precision)
    runner.register_hook(CompleteCheckpointHook())
    return runner.test()


def _unwrap_model(runner: Runner) -> nn.Module:
    return runner.model.module if is_model_wrapper(runner.model) else runner.model
