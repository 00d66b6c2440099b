"""Choice of the checkpoint that a training resumes from."""

import pytest
import torch
from mmengine.config import Config

from mminline.engine.resume import find_whole_checkpoint, resume


def test_the_last_whole_checkpoint_counts_by_number(tmp_path, capsys):
    for number in (2, 10, 12):
        torch.save(dict(state_dict={}), tmp_path / f'iter_{number}.pth')
    torch.save(dict(state_dict={}), tmp_path / 'best_mIoU_iter_99.pth')
    cut = tmp_path / 'iter_12.pth'
    cut.write_bytes(cut.read_bytes()[:-100])

    assert find_whole_checkpoint(tmp_path) == tmp_path / 'iter_10.pth'
    assert 'Passed over: ' in capsys.readouterr().err


def test_a_checkpoint_in_a_folder_counts_once_it_is_noted(tmp_path, capsys):
    for name in ('iter_2.pth', 'iter_4.pth'):
        (tmp_path / name).mkdir()
    (tmp_path / 'last_checkpoint').write_text('work/iter_2.pth')

    assert find_whole_checkpoint(tmp_path) == tmp_path / 'iter_2.pth'
    assert 'iter_4.pth was written' in capsys.readouterr().err


def test_a_folder_without_a_whole_checkpoint_is_named(tmp_path):
    (tmp_path / 'epoch_1.pth').write_bytes(b'PK')

    with pytest.raises(ValueError, match=f'No checkpoint in {tmp_path} is whole'):
        find_whole_checkpoint(tmp_path)


def test_resuming_fetches_no_weights_that_training_began_with(tmp_path):
    pretrained = dict(type='Pretrained', checkpoint='inline://pvt-tiny')
    torch.save(dict(state_dict={}), tmp_path / 'epoch_3.pth')
    config = Config(dict(model=dict(backbone=dict(init_cfg=pretrained)), work_dir=str(tmp_path)))

    resume(config)

    assert (config.resume, config.load_from) == (True, str(tmp_path / 'epoch_3.pth'))
    assert config.model.backbone.init_cfg is None


def test_an_empty_folder_is_no_error(tmp_path, capsys):
    config = Config(dict(model={}, work_dir=str(tmp_path / 'new')))

    resume(config)

    assert 'resume' not in config
    assert 'training starts from the beginning' in capsys.readouterr().out
