"""Configs of runs: folders, options, and what is refused before anything is built."""

import copy
import functools
import os

import pytest
import torch
from mmengine.config import Config

from helpers.tiny_configs import SEGMENTOR
from mminline.engine import config as run_config
from mminline.engine.config import load_run_config, log_to_tensorboard, scale_learning_rate
from mminline.engine.runs import prepare_test, prepare_training

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')


@functools.cache
def read() -> Config:
    return Config.fromstring(SEGMENTOR, '.py')


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Read the small segmentor once, whatever the name: mmengine takes a second over it."""
    monkeypatch.setattr(run_config, 'read_config', lambda path, options: copy.deepcopy(read()))


def test_the_work_dir_is_named_after_the_config_unless_one_is_given():
    assert load_run_config('configs/small.py').work_dir == 'work_dirs/small'
    assert load_run_config('configs/small.py', work_dir='here').work_dir == 'here'


@NO_GPU
def test_batch_norm_across_processes_becomes_plain_without_a_gpu():
    assert read().model.decode_head.norm_cfg.type == 'SyncBN'
    assert load_run_config('small.py').model.decode_head.norm_cfg.type == 'BN'


@pytest.mark.parametrize(
    ('launcher', 'variable'),
    [('pytorch', 'RANK'), ('slurm', 'SLURM_PROCID'), ('mpi', 'OMPI_COMM_WORLD_RANK')],
)
def test_a_launcher_that_started_nothing_is_refused(monkeypatch, launcher, variable):
    monkeypatch.delenv(variable, raising=False)

    with pytest.raises(ValueError, match=f'--launcher {launcher} .* {variable} is not set'):
        load_run_config('small.py', launcher=launcher)


@NO_GPU
def test_slurm_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setenv('SLURM_PROCID', '0')

    with pytest.raises(ValueError, match='--launcher slurm needs GPUs'):
        load_run_config('small.py', launcher='slurm')


def test_the_rank_that_a_launcher_passes_reaches_mmengine(monkeypatch):
    monkeypatch.delenv('LOCAL_RANK', raising=False)

    load_run_config('small.py', local_rank=3)

    assert os.environ.pop('LOCAL_RANK') == '3'


@NO_GPU
@pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')
def test_mixed_precision_without_a_gpu_is_that_of_a_cpu(shapes, monkeypatch):
    monkeypatch.chdir(shapes.parent)
    config = load_run_config('small.py')

    prepare_training(config, amp=True)

    assert config.optim_wrapper.type == 'mminline.BFloat16OptimWrapper'
    assert 'loss_scale' not in config.optim_wrapper


@NO_GPU
def test_a_test_in_float16_without_a_gpu_is_refused(tmp_path):
    (tmp_path / 'model.pth').touch()

    with pytest.raises(ValueError, match='precision=float16 needs a GPU'):
        prepare_test(load_run_config('small.py'), tmp_path / 'model.pth', 'float16')


def test_scaling_the_rate_needs_to_know_what_it_is_for():
    config = load_run_config('small.py')
    config.auto_scale_lr = dict(enable=False)

    with pytest.raises(ValueError, match='auto_scale_lr.base_batch_size'):
        scale_learning_rate(config)


def test_tensorboard_is_added_to_what_is_logged_to(monkeypatch):
    config = Config(dict(visualizer=dict(type='Seg', vis_backends=[dict(type='Local')])))
    monkeypatch.setattr('importlib.util.find_spec', lambda name: name)

    log_to_tensorboard(config)

    backends = [backend['type'] for backend in config.visualizer.vis_backends]
    assert backends == ['Local', 'TensorboardVisBackend']
