"""Train and test what a config describes."""

from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from ..apis import check_complete
from ..checkpoints import unwrap
from .data import check_checkpoint, check_data
from .resume import warn_of_single_checkpoint


class CompleteCheckpointHook(Hook):
    """Refuses a checkpoint that leaves parts of the model at random, such as a bare backbone."""

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        check_complete(model, unwrap(checkpoint), runner.cfg.load_from)


def prepare_training(config: Config, amp: bool = False) -> None:
    """Complete the config of a training, and check that its data is there."""
    if amp:
        _check_gpu()
        config.optim_wrapper.type = 'AmpOptimWrapper'
        config.optim_wrapper.loss_scale = 'dynamic'
    config.setdefault('runner_type', 'Runner')
    check_data(config, 'train', 'val')
    warn_of_single_checkpoint(config)


def train(config: Config) -> Runner:
    """Train; the runner that comes back has the model and the log."""
    runner = RUNNERS.build(config)
    runner.train()
    return runner


def prepare_test(config: Config, checkpoint: str | Path, amp: bool = False) -> None:
    """Complete the config of a test, and check that checkpoint and data are there."""
    check_checkpoint(checkpoint)
    config.load_from = str(checkpoint)
    if amp:
        _check_gpu()
        config.test_cfg.fp16 = True
    check_data(config, 'test')


def evaluate(config: Config) -> dict[str, float]:
    """Test the checkpoint of a config, which has to fill the whole model; return the scores."""
    runner = Runner.from_cfg(config)
    runner.register_hook(CompleteCheckpointHook())
    return runner.test()


def _check_gpu() -> None:
    if get_device() == 'cpu':
        raise ValueError('--amp needs a GPU, and there is none: leave it out.')
