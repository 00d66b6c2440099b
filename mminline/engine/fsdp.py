"""FSDP whose checkpoints are whole, can be resumed, and are written on a CPU too."""

from mmengine._strategy import FSDPStrategy
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import STRATEGIES
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

# What mmengine makes of state_dict_cfg='full'.
WHOLE = dict(
    state_dict_config=dict(type='FullStateDictConfig', rank0_only=True, offload_to_cpu=True),
    optim_state_dict_config=dict(
        type='FullOptimStateDictConfig', rank0_only=True, offload_to_cpu=True
    ),
)


@STRATEGIES.register_module()
class WholeFSDPStrategy(FSDPStrategy):
    """mmengine's FSDPStrategy, mended for today's torch and for a CPU.

    - mmengine hands the optimizer's state to torch in an order of arguments that torch has
      changed: resuming fails.
    - torch frees the gathered weights once they are offloaded. On a CPU nothing is moved, so that
      frees the weights themselves, and reading them ends the process with a segmentation fault.
    """

    def __init__(self, *, model_wrapper: dict | None = None, **kwargs) -> None:
        on_cpu = get_device() == 'cpu'
        if on_cpu:
            model_wrapper = dict(model_wrapper or {}, device_id='cpu')
        super().__init__(model_wrapper=model_wrapper, **kwargs)
        if on_cpu:
            self.state_dict_config.offload_to_cpu = False

    def load_optim_state_dict(self, state_dict: dict) -> None:
        optimizer = self.optim_wrapper.optimizer
        shard = FullyShardedDataParallel.optim_state_dict_to_load(
            model=self.model, optim=optimizer, optim_state_dict=state_dict
        )
        self.optim_wrapper.load_state_dict(shard)


def prepare_fsdp(config: Config) -> None:
    """Have a config that asks for FSDP use ``WholeFSDPStrategy``; refuse what it could not resume.

    The files of ``state_dict_cfg='local'``, mmengine's default, hold objects of
    torch.distributed, which the safe reader of checkpoints refuses.
    """
    strategy = config.get('strategy') or {}
    if strategy.get('type', '').rpartition('.')[2] != 'FSDPStrategy':
        return
    if config.get('launcher', 'none') == 'none':
        raise ValueError(
            'FSDPStrategy distributes a model over processes: start them with torchrun, srun or '
            'mpirun, and name that with --launcher.'
        )
    asked = strategy.get('state_dict_cfg', 'local')
    kind = asked.get('state_dict_type', 'local') if isinstance(asked, dict) else asked
    if kind not in ('full', 'FULL_STATE_DICT', StateDictType.FULL_STATE_DICT):
        raise ValueError(
            f"With FSDPStrategy, strategy.state_dict_cfg has to be 'full', got {kind!r}: a "
            'checkpoint that is a shard per process could not be resumed.'
        )
    if isinstance(asked, dict):
        # mmengine would fill what is left out with the settings of shards, which torch refuses.
        asked = {**WHOLE, **asked, 'state_dict_type': 'FULL_STATE_DICT'}
    config.strategy = dict(strategy, type='WholeFSDPStrategy', state_dict_cfg=asked)
