"""Checkpoints of mmengine load with ``weights_only`` on, and crafted files are refused."""

import os
import zipfile
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModel
from mmengine.runner import CheckpointLoader, Runner
from torch.torch_version import TorchVersion

from mminline import compat


class LineFit(BaseModel):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, inputs, mode):
        return dict(loss=self.linear(inputs).square().mean())


class Reduced:
    """Pickles as a call of ``function``, as a crafted file would."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def make_runner(work_dir, max_epochs: int, resume: bool) -> Runner:
    return Runner(
        LineFit(),
        work_dir=str(work_dir),
        train_dataloader=dict(
            dataset=[dict(inputs=torch.ones(1))] * 4,
            sampler=dict(type='DefaultSampler', shuffle=False),
            collate_fn=dict(type='default_collate'),
            batch_size=2,
        ),
        train_cfg=dict(by_epoch=True, max_epochs=max_epochs),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        resume=resume,
        experiment_name=f'{work_dir.name}-{max_epochs}',
        log_level='ERROR',
    )


@pytest.fixture
def checkpoint(tmp_path):
    """A file that a real training run left, with a score as mmseg reports it."""
    runner = make_runner(tmp_path, max_epochs=1, resume=False)
    runner.message_hub.update_info('best_score', np.float32(0.5))
    runner.train()
    return tmp_path / 'epoch_1.pth'


def test_training_resumes_from_its_own_checkpoint(checkpoint):
    runner = make_runner(checkpoint.parent, max_epochs=2, resume=True)
    runner.train()

    assert runner.iter == 4
    losses, _ = runner.message_hub.get_scalar('train/loss').data
    assert len(losses) == 4


def test_checkpoint_loader_reads_weights_log_and_score(checkpoint):
    loaded = CheckpointLoader.load_checkpoint(str(checkpoint))

    assert loaded['state_dict'].keys() == {'linear.weight', 'linear.bias'}
    assert loaded['message_hub']['log_scalars']['train/loss'].current() > 0
    assert loaded['message_hub']['runtime_info']['best_score'] == np.float32(0.5)


def test_the_history_comes_back_with_its_statistics(tmp_path):
    torch.save(HistoryBuffer([1.0, 2.0], [1, 1]), tmp_path / 'history.pth')

    history = torch.load(tmp_path / 'history.pth')

    statistics = [history.statistics(name) for name in ('min', 'max', 'current', 'mean')]
    assert statistics == [1.0, 2.0, 2.0, 1.5]


def test_files_written_by_numpy_1_load_too(tmp_path):
    torch.save({'scores': np.arange(3.0), 'best': np.float64(2)}, tmp_path / 'new.pth')
    with (
        zipfile.ZipFile(tmp_path / 'new.pth') as new,
        zipfile.ZipFile(tmp_path / 'old.pth', 'w') as old,
    ):
        for name in new.namelist():
            old.writestr(name, new.read(name).replace(b'numpy._core.', b'numpy.core.'))

    loaded = torch.load(tmp_path / 'old.pth')

    assert loaded['scores'].tolist() == [0, 1, 2] and loaded['best'] == 2


def test_a_file_that_names_an_unknown_global_is_refused(tmp_path):
    torch.save(Reduced(os.mkdir, str(tmp_path / 'made')), tmp_path / 'crafted.pth')

    with pytest.raises(UnpicklingError, match='mkdir'):
        torch.load(tmp_path / 'crafted.pth')
    assert not (tmp_path / 'made').exists()


@pytest.mark.parametrize(
    'arguments',
    [
        (HistoryBuffer, '__init__'),
        (HistoryBuffer, '_statistics_methods'),
        (Reduced(getattr, HistoryBuffer, 'min'), '__globals__'),
        (np.ndarray, 'tofile'),
    ],
    ids=lambda arguments: arguments[1],
)
def test_a_file_that_abuses_getattr_is_refused(tmp_path, arguments):
    torch.save(Reduced(getattr, *arguments), tmp_path / 'crafted.pth')

    with pytest.raises(UnpicklingError, match='A checkpoint may not ask for'):
        torch.load(tmp_path / 'crafted.pth')


def test_the_real_getattr_is_never_allowed():
    allowed = torch.serialization.get_safe_globals()

    assert getattr not in [entry[0] if isinstance(entry, tuple) else entry for entry in allowed]


def test_allowing_twice_changes_nothing():
    before = set(torch.serialization.get_safe_globals())
    compat.allow_mmengine_checkpoints()

    assert set(torch.serialization.get_safe_globals()) == before


def test_torch_without_safe_globals_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch, '__version__', TorchVersion('2.3.1'))
    monkeypatch.delattr(torch.serialization, 'add_safe_globals')

    compat.allow_mmengine_checkpoints()
