"""Settings of FSDP that could not be resumed are refused before training starts."""

import pytest
from mmengine.config import Config

from mminline.engine.fsdp import prepare_fsdp


def config(launcher='pytorch', **strategy) -> Config:
    return Config(dict(strategy=dict(type='FSDPStrategy', **strategy), launcher=launcher))


@pytest.mark.parametrize('asked', ['full', dict(state_dict_type='FULL_STATE_DICT')])
def test_whole_checkpoints_are_accepted(asked):
    accepted = config(state_dict_cfg=asked)

    prepare_fsdp(accepted)

    assert accepted.strategy == dict(type='WholeFSDPStrategy', state_dict_cfg=asked)


# Without a setting mmengine writes shards.
@pytest.mark.parametrize(
    'settings',
    [
        {},
        dict(state_dict_cfg='local'),
        dict(state_dict_cfg=dict(state_dict_type='LOCAL_STATE_DICT')),
    ],
)
def test_checkpoints_in_shards_are_refused(settings):
    with pytest.raises(
        ValueError, match=r"state_dict_cfg has to be 'full', got '(local|LOCAL_\w+)'"
    ):
        prepare_fsdp(config(**settings))


def test_a_process_that_is_alone_is_refused():
    with pytest.raises(ValueError, match='start them with torchrun, srun or mpirun'):
        prepare_fsdp(config(launcher='none', state_dict_cfg='full'))


def test_other_strategies_stay_as_they_are():
    for settings in ({}, dict(strategy=dict(type='DDPStrategy'))):
        other = Config(dict(settings, launcher='none'))
        prepare_fsdp(other)
        assert other.get('strategy') == settings.get('strategy')
