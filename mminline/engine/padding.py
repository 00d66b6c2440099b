"""Padding that necks and dense heads ignore too, in the tools of mmdet and mmseg."""

from mmengine.hooks import Hook
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.runner import Runner
from torch import nn

from ..models import ignore_padding
from ..registry import HOOKS


@MMENGINE_HOOKS.register_module()
@HOOKS.register_module()
class IgnorePaddingHook(Hook):
    """Lets neck and dense head ignore padding in training and tests.

    See ``mminline.models.ignore_padding``. In a config::

        custom_hooks = [dict(type='mminline.IgnorePaddingHook')]
    """

    def before_run(self, runner: Runner) -> None:
        self.prepare(runner.model)

    def prepare(self, model: nn.Module) -> None:
        """Do the same without a runner."""
        ignore_padding(model)
