"""``IgnorePaddingHook``: one line of a config, for runners and for ``init_model``."""

import copy
import functools
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import MODELS, DefaultScope

from helpers.tiny_configs import DETECTOR
from helpers.tiny_runner import make_runner
from mminline.apis import init_model
from mminline.engine import IgnorePaddingHook
from mminline.registry import HOOKS

SETTINGS = dict(type='mminline.IgnorePaddingHook')


@functools.cache
def read() -> Config:
    return Config.fromstring(DETECTOR, '.py')


def is_prepared(model) -> bool:
    return bool(model.rpn_head.rpn_conv._forward_pre_hooks)


def test_the_hook_is_in_the_own_and_in_the_root_registry():
    assert HOOKS.get('IgnorePaddingHook') is IgnorePaddingHook
    for name in ('IgnorePaddingHook', 'mminline.IgnorePaddingHook'):
        assert MMENGINE_HOOKS.get(name) is IgnorePaddingHook


@pytest.mark.parametrize('scope', ['mmdet', 'mmseg'])
def test_it_resolves_from_the_scope_of_a_library(scope):
    pytest.importorskip(scope)
    with DefaultScope.overwrite_default_scope(scope):
        assert type(MMENGINE_HOOKS.build(dict(SETTINGS))) is IgnorePaddingHook


def test_the_model_of_a_runner_is_prepared_before_it_runs():
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(copy.deepcopy(read().model))
    assert not is_prepared(model)
    IgnorePaddingHook().before_run(SimpleNamespace(model=model))
    assert is_prepared(model)


def test_a_runner_says_that_a_model_has_nothing_to_prepare(tmp_path):
    runner = make_runner(tmp_path, custom_hooks=[dict(SETTINGS)])

    with pytest.raises(ValueError, match='needs a backbone with ignore_padding=True.*Line'):
        runner.train()


@pytest.mark.parametrize('kind', ['mminline.IgnorePaddingHook', IgnorePaddingHook, 'EMAHook', None])
def test_init_model_does_what_the_hook_of_a_config_does(kind):
    config = copy.deepcopy(read())
    if kind is not None:
        config.custom_hooks = [dict(type='NumClassCheckHook'), dict(type=kind)]
    model = init_model(config, device='cpu')

    assert is_prepared(model) == (kind not in ('EMAHook', None))
