"""Reading a checkpoint runs nothing of it, and takes what training scripts leave beside weights."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.torch_version import TorchVersion

from mminline.checkpoints.reader import read_file


class Call:
    """Pickles as a call, as a crafted file would."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def save_with_foreign_config(path: Path, **contents) -> None:
    """Save beside the weights a config object whose package is gone when the file is read."""
    config_type = type('CfgNode', (dict,), {'__module__': 'vanished.config'})
    package, module = ModuleType('vanished'), ModuleType('vanished.config')
    module.CfgNode = config_type
    config = config_type(MODEL=config_type(DEPTHS=[2, 2, 6, 2], NAME='tiny', DROP=0.1))
    config.__dict__.update(frozen=True, renamed=set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, 'vanished', package)
        patch.setitem(sys.modules, 'vanished.config', module)
        torch.save({'config': config, **contents}, path)


def test_a_config_object_of_an_unknown_package_is_no_obstacle(tmp_path):
    weight = torch.randn(3, 4)
    save_with_foreign_config(
        tmp_path / 'official.pth',
        model={'weight': weight},
        optimizer={'state': {0: {'exp_avg': torch.ones(2)}}, 'param_groups': [{'lr': 1e-3}]},
        args=argparse.Namespace(batch_size=128),
        epoch=299,
    )

    checkpoint = read_file(tmp_path / 'official.pth')

    assert torch.equal(checkpoint['model']['weight'], weight)
    assert checkpoint['optimizer']['param_groups'] == [{'lr': 1e-3}]
    assert checkpoint['epoch'] == 299


def test_an_older_torch_reads_weights_and_refuses_what_it_cannot_leave_out(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, '__version__', TorchVersion('2.1.0'))
    torch.save({'model': torch.ones(2)}, tmp_path / 'plain.pth')
    assert torch.equal(read_file(tmp_path / 'plain.pth')['model'], torch.ones(2))
    save_with_foreign_config(tmp_path / 'foreign.pth')
    with pytest.raises(ValueError, match=r'objects that take torch 2\.6 to skip'):
        read_file(tmp_path / 'foreign.pth')


def test_what_was_left_out_is_logged(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(
        'mminline.checkpoints.reader.print_log', lambda message, logger: lines.append(message)
    )
    save_with_foreign_config(tmp_path / 'a.pth', args=argparse.Namespace())
    read_file(tmp_path / 'a.pth')
    assert lines == ['a.pth: left out objects of argparse.Namespace, vanished.config.CfgNode']


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('attack', ['exec', 'open', 'subprocess', 'setattr'])
def test_nothing_in_a_crafted_file_runs(attack, zipped, tmp_path):
    mark = tmp_path / 'mark'
    call = {
        'exec': Call(exec, f'open({str(mark)!r}, "w")'),
        'open': Call(open, str(mark), 'w'),
        'subprocess': Call(subprocess.check_call, ['touch', str(mark)]),
        'setattr': Call(setattr, argparse.Namespace, 'marked', True),
    }[attack]
    path = tmp_path / 'crafted.pth'
    contents = {'model': {'weight': torch.ones(2)}, 'config': call}
    torch.save(contents, path, _use_new_zipfile_serialization=zipped)

    if zipped:
        assert torch.equal(read_file(path)['model']['weight'], torch.ones(2))
    else:
        with pytest.raises(ValueError, match='holds more than tensors'):
            read_file(path)

    assert not mark.exists()
    assert not hasattr(argparse.Namespace, 'marked')


def test_the_crafted_files_of_these_tests_do_run_without_protection(tmp_path):
    mark = tmp_path / 'mark'
    torch.save(Call(open, str(mark), 'w'), tmp_path / 'crafted.pth')
    torch.load(tmp_path / 'crafted.pth', weights_only=False)
    assert mark.exists()


def test_names_of_the_operating_system_are_refused(tmp_path):
    mark = tmp_path / 'mark'
    torch.save({'config': Call(os.mkdir, str(mark))}, tmp_path / 'crafted.pth')
    with pytest.raises(
        ValueError, match=r'got one with (posix|nt)\.mkdir, refused: .*crafted\.pth'
    ):
        read_file(tmp_path / 'crafted.pth')
    assert not mark.exists()


def test_blanks_do_not_stay_behind(tmp_path):
    save_with_foreign_config(tmp_path / 'a.pth')
    before = set(torch.serialization.get_safe_globals())
    read_file(tmp_path / 'a.pth')
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (lambda whole: b'', 'an empty file'),
        (lambda whole: whole[: len(whole) // 2], r'an archive that is cut off \([\d,]+ bytes\)'),
        (lambda whole: b'\n<!DOCTYPE html><html>Sign in</html>', r'a web page \(36 bytes\)'),
        (lambda whole: b'nonsense', '8 bytes of something else'),
    ],
)
def test_what_is_no_checkpoint_is_described(damage, message, tmp_path):
    path = tmp_path / 'broken.pth'
    torch.save({'model': {'weight': torch.randn(50)}}, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        ValueError, match=rf'whole file of torch\.save, got {message}: .*broken\.pth'
    ):
        read_file(path)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'there is none at .*missing\.pth'):
        read_file(tmp_path / 'missing.pth')
