"""Training in several processes: equal weights, FSDP and its checkpoints, missing launchers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch.testing import assert_close

from helpers.shipped_configs import ROOT
from helpers.tiny_configs import SEGMENTOR, TOOLS

pytestmark = pytest.mark.slow

GUIDE = (ROOT / 'docs' / 'distributed.md').read_text()
FSDP, DEEPSPEED = re.findall(r'```python\n(.*?)```', GUIDE, re.S)
# Keeps what each process saw and what became of its weights.
WITNESS = """
import torch
from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

@HOOKS.register_module()
class Witness(Hook):
    def before_train(self, runner):
        self.seen, self.first, self.start = [], self.weights(runner), self.momentum(runner)

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        self.seen += [sample.img_path for sample in data_batch['data_samples']]

    def after_train(self, runner):
        record = dict(seen=self.seen, first=self.first, last=self.weights(runner))
        record |= dict(start=self.start, end=self.momentum(runner))
        torch.save(record, f'rank{get_rank()}.pth')

    def weights(self, runner):
        return {name: value.detach().clone() for name, value in runner.model.named_parameters()}

    def momentum(self, runner):
        states = runner.optim_wrapper.optimizer.state.values()
        return [s['momentum_buffer'].clone() for s in states if 'momentum_buffer' in s]
"""


@pytest.fixture
def train_together(shapes, tmp_path, monkeypatch):
    """Train in two processes of the CPU; return what each has kept."""
    (tmp_path / 'shapes').symlink_to(shapes)
    (tmp_path / 'witness.py').write_text(WITNESS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PYTHONPATH', f'{tmp_path}{os.pathsep}{os.environ.get("PYTHONPATH", "")}')
    monkeypatch.setenv('OMP_NUM_THREADS', '1')

    def train(
        settings: str = '', *options: str, launcher: str = 'torch.distributed.run'
    ) -> list[dict]:
        Path('small.py').write_text(
            SEGMENTOR
            + "custom_imports = dict(imports=['witness'])\ncustom_hooks = [dict(type='Witness')]\n"
            + "train_cfg['max_iters'] = 2\n"
            + settings
        )
        command = [sys.executable, '-m', launcher, '--nproc_per_node=2', '--standalone']
        command += [TOOLS / 'train.py', 'small.py', '--launcher', 'pytorch', *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        return [torch.load(f'rank{rank}.pth') for rank in range(2)]

    return train


# The second is the launcher that mim uses: it hands over --local-rank.
@pytest.mark.parametrize('launcher', ['torch.distributed.run', 'torch.distributed.launch'])
def test_two_processes_have_equal_weights_after_different_data(train_together, launcher):
    ours, theirs = train_together(launcher=launcher)

    assert len(ours['seen']) == len(theirs['seen']) == 4
    assert not set(ours['seen'][:2]) & set(theirs['seen'][:2])
    assert_close(ours['last'], theirs['last'], rtol=0, atol=0)
    changed = [name for name in ours['last'] if (ours['first'][name] != ours['last'][name]).any()]
    assert any('attn.qkv' in name for name in changed)


def test_the_flexible_runner_trains_alone_too(shapes, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('shapes').symlink_to(shapes)
    Path('small.py').write_text(SEGMENTOR + "runner_type = 'FlexibleRunner'\n")

    run('train.py', 'small.py', '--cfg-options', 'train_cfg.max_iters=2')

    assert torch.load('work_dirs/small/iter_2.pth')['meta']['iter'] == 2
    assert Config.fromfile('work_dirs/small/small.py').runner_type == 'FlexibleRunner'


def test_fsdp_trains_shards_of_the_same_weights_and_resumes(train_together):
    # No adaptive steps, which would blow up the rounding of gradients next to zero.
    settings = """
runner_type = 'FlexibleRunner'
randomness = dict(seed=0)
sgd = dict(type='SGD', lr=0.1, momentum=0.9)
optim_wrapper = dict(_delete_=True, type='OptimWrapper', optimizer=sgd)
"""
    whole, _ = train_together(settings)
    settings += FSDP + "work_dir = 'fsdp'\n"
    shards = train_together(settings)

    for name, value in whole['last'].items():
        name = name.replace('module.', '_fsdp_wrapped_module.', 1)
        parts = [shard['last'][name].flatten() for shard in shards]
        assert_close(torch.cat(parts), value.flatten(), rtol=1e-4, atol=1e-6)
    sizes = [sum(value.numel() for value in shard['last'].values()) for shard in shards]
    assert max(sizes) < 0.6 * sum(sizes)
    # The checkpoint is that of a model in one process.
    saved, usual = (
        torch.load(f'{folder}/iter_2.pth')['state_dict'] for folder in ('fsdp', 'work_dirs/small')
    )
    # mmengine's FlexibleRunner names the wrapper of data parallel training too.
    usual = {name.removeprefix('module.'): value for name, value in usual.items()}
    assert_close(dict(saved), usual, rtol=1e-4, atol=1e-6)

    resumed = train_together(settings + "train_cfg['max_iters'] = 3\n", '--resume')

    for before, after in zip(shards, resumed, strict=True):
        assert len(after['seen']) == 2  # one more iteration
        assert_close(after['first'], before['last'], rtol=0, atol=0)
        assert before['end']
        assert_close(after['start'], before['end'], rtol=0, atol=0)


def test_the_deepspeed_settings_name_what_mmengine_has(tmp_path):
    from mmengine.registry import OPTIM_WRAPPERS, STRATEGIES

    (tmp_path / 'deepspeed.py').write_text(DEEPSPEED)
    config = Config.fromfile(tmp_path / 'deepspeed.py')

    assert STRATEGIES.get(config.strategy.type).__name__ == 'DeepSpeedStrategy'
    assert OPTIM_WRAPPERS.get(config.optim_wrapper.type).__name__ == 'DeepSpeedOptimWrapper'


def test_a_launcher_that_started_nothing_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.delenv('RANK', raising=False)
    (tmp_path / 'small.py').write_text(SEGMENTOR)

    with pytest.raises(SystemExit, match='--launcher pytorch .* RANK is not set'):
        run('train.py', tmp_path / 'small.py', '--launcher', 'pytorch')
