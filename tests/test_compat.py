"""Checkpoints of mmengine load with ``weights_only`` on, and crafted files are refused."""

import os
import zipfile
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.optim import OneCycleParamScheduler
from mmengine.runner import CheckpointLoader

from helpers.crafted import CRAFTED, Call
from helpers.tiny_runner import make_runner
from mminline import compat
from mminline.checkpoints import UnsafeCheckpointError


@pytest.fixture
def checkpoint(tmp_path):
    """A file that a real training run left, with a score as mmseg reports it."""
    runner = make_runner(tmp_path)
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
    torch.save(Call(os.mkdir, str(tmp_path / 'made')), tmp_path / 'crafted.pth')

    with pytest.raises(UnpicklingError, match='mkdir'):
        torch.load(tmp_path / 'crafted.pth')
    assert not (tmp_path / 'made').exists()


@pytest.mark.parametrize(
    'arguments',
    [
        (HistoryBuffer, '__init__'),
        (HistoryBuffer, '_statistics_methods'),
        (Call(getattr, HistoryBuffer, 'min'), '__globals__'),
        (OneCycleParamScheduler, '__init__'),
        (OneCycleParamScheduler, 'min'),
        (np.ndarray, 'tofile'),
    ],
    ids=lambda arguments: arguments[1],
)
def test_a_file_that_abuses_getattr_is_refused(tmp_path, arguments):
    torch.save(Call(getattr, *arguments), tmp_path / 'crafted.pth')

    with pytest.raises(UnpicklingError, match='A checkpoint may not ask for'):
        torch.load(tmp_path / 'crafted.pth')


def test_the_real_getattr_is_never_allowed():
    allowed = torch.serialization.get_safe_globals()

    assert getattr not in [entry[0] if isinstance(entry, tuple) else entry for entry in allowed]


def test_allowing_twice_changes_nothing():
    before = set(torch.serialization.get_safe_globals())
    compat.allow_mmengine_checkpoints()

    assert set(torch.serialization.get_safe_globals()) == before


@pytest.fixture
def allowed_by_others():
    """Let a test allow more, and take it back."""
    yield torch.serialization.add_safe_globals
    torch.serialization.clear_safe_globals()
    compat.allow_mmengine_checkpoints()


@pytest.mark.parametrize('entry', [getattr, (getattr, 'builtins.getattr')])
def test_getattr_is_refused_even_where_others_have_allowed_it(entry, allowed_by_others, tmp_path):
    allowed_by_others([entry])
    CRAFTED['getattr'][0](tmp_path / 'crafted.pth', tmp_path / 'mark')

    with pytest.raises(UnsafeCheckpointError, match="may not ask for '__init__'"):
        CheckpointLoader.load_checkpoint(str(tmp_path / 'crafted.pth'))
    assert not (tmp_path / 'mark').exists()


def test_what_users_allow_is_loaded(allowed_by_others, tmp_path):
    allowed_by_others([slice])
    torch.save({'rows': slice(1, 2)}, tmp_path / 'a.pth')
    assert CheckpointLoader.load_checkpoint(str(tmp_path / 'a.pth')) == {'rows': slice(1, 2)}


def test_a_loader_that_takes_allowed_names_away_does_no_harm(checkpoint):
    # As onedl-mmengine's own loader does.
    with torch.serialization.safe_globals([getattr, HistoryBuffer, np.ndarray, np.dtype]):
        pass
    assert HistoryBuffer not in torch.serialization.get_safe_globals()

    loaded = CheckpointLoader.load_checkpoint(str(checkpoint))

    assert loaded['message_hub']['log_scalars']['train/loss'].current() > 0
