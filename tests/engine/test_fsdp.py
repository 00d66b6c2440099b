"""Settings of FSDP that could not be resumed are refused before training starts."""

import pytest
from mmengine.config import Config
from mmengine.registry import STRATEGIES
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType

from mminline.engine.fsdp import WholeFSDPStrategy, prepare_fsdp


def config(launcher='pytorch', **strategy) -> Config:
    return Config(dict(strategy=dict(type='FSDPStrategy', **strategy), launcher=launcher))


@pytest.mark.parametrize(
    'asked',
    [
        'full',
        dict(state_dict_type='FULL_STATE_DICT'),
        dict(state_dict_type=StateDictType.FULL_STATE_DICT),
        dict(state_dict_type='full', state_dict_config=dict(type='FullStateDictConfig')),
    ],
)
def test_whole_checkpoints_are_accepted(asked, tmp_path):
    accepted = config(state_dict_cfg=asked)

    prepare_fsdp(accepted)

    # torch insists that all three agree.
    built = STRATEGIES.build(dict(accepted.strategy, work_dir=str(tmp_path)))
    assert type(built) is WholeFSDPStrategy
    assert built.state_dict_type == StateDictType.FULL_STATE_DICT
    assert isinstance(built.state_dict_config, FullStateDictConfig)
    assert isinstance(built.optim_state_dict_config, FullOptimStateDictConfig)
    is_given = isinstance(asked, dict) and 'state_dict_config' in asked
    assert built.state_dict_config.rank0_only != is_given


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
