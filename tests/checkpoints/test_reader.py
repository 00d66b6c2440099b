"""Reading a checkpoint runs nothing of it, and takes what training scripts leave beside weights."""

import argparse
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from helpers.crafted import CRAFTED, NOT_RUN, Call
from mminline.checkpoints.reader import UnsafeCheckpointError, read_file


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


def test_what_was_left_out_is_logged(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(
        'mminline.checkpoints.reader.print_log', lambda message, logger: lines.append(message)
    )
    save_with_foreign_config(tmp_path / 'a.pth', out=Path('work'))
    read_file(tmp_path / 'a.pth')
    (line,) = lines
    assert re.fullmatch(
        r'a\.pth: left out objects of pathlib\.\S+, vanished\.config\.CfgNode', line
    )


@pytest.mark.parametrize('kind', CRAFTED)
def test_nothing_in_a_crafted_file_runs(kind, tmp_path):
    write, asked = CRAFTED[kind]
    write(tmp_path / 'crafted.pth', tmp_path / 'mark')

    with pytest.raises(ValueError, match=asked) as refusal:
        read_file(tmp_path / 'crafted.pth')

    assert re.search(NOT_RUN, str(refusal.value))
    assert 'crafted.pth' in str(refusal.value)
    assert not (tmp_path / 'mark').exists()


@pytest.mark.parametrize('zipped', [True, False])
def test_the_settings_of_a_crafted_file_do_not_change_a_class(zipped, tmp_path):
    call = Call(setattr, argparse.Namespace, 'marked', True)
    torch.save(
        {'model': {}, 'config': call}, tmp_path / 'a.pth', _use_new_zipfile_serialization=zipped
    )
    with pytest.raises(UnsafeCheckpointError, match=r'it asks for (builtins\.)?setattr\.'):
        read_file(tmp_path / 'a.pth')
    assert not hasattr(argparse.Namespace, 'marked')


def test_strict_reading_leaves_nothing_out(tmp_path):
    save_with_foreign_config(tmp_path / 'a.pth')
    with pytest.raises(UnsafeCheckpointError, match=r'a\.pth .*asks for vanished\.config\.CfgNode'):
        read_file(tmp_path / 'a.pth', strict=True)


def test_the_message_can_name_another_source_than_the_file(tmp_path):
    save_with_foreign_config(tmp_path / 'a.pth')
    for content in ((tmp_path / 'a.pth').read_bytes(), b'nonsense'):
        (tmp_path / 'a.pth').write_bytes(content)
        with pytest.raises(ValueError, match='https://host/b') as refusal:
            read_file(tmp_path / 'a.pth', strict=True, source='https://host/b')
        assert 'a.pth' not in str(refusal.value)


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


@pytest.mark.parametrize('length', [100, 128])  # the second begins as a pickle does
def test_a_file_of_safetensors_is_refused_with_words(length, tmp_path):
    header = b'{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(length)
    path = tmp_path / 'a.safetensors'
    path.write_bytes(len(header).to_bytes(8, 'little') + header + bytes(4))

    with pytest.raises(
        ValueError, match=r'got one of safetensors \(.*load_file reads it\): .*a.safe'
    ):
        read_file(path)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'there is none at .*missing\.pth'):
        read_file(tmp_path / 'missing.pth')
