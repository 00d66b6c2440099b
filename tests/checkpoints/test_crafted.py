"""Files that would run code are refused, whatever mmengine loads them for and from.

Stands on mmengine alone, so that it runs on each stack that is supported.
"""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import mmengine.runner.checkpoint
import pytest
import torch
from mmengine.model import BaseModule
from mmengine.runner import CheckpointLoader, load_checkpoint

from helpers.crafted import CRAFTED, NOT_RUN
from helpers.tiny_runner import Line, make_runner
from mminline.checkpoints import UnsafeCheckpointError

write_call, _ = CRAFTED['call of the system']


class Part(BaseModule):
    """The layer of ``Line`` by itself."""

    def __init__(self, init_cfg: dict):
        super().__init__(init_cfg)
        self.weight = torch.nn.Parameter(torch.zeros(1, 1))
        self.bias = torch.nn.Parameter(torch.zeros(1))


def call_function(address: str) -> dict:
    """Load by the function of mmengine itself, not by the table of schemes."""
    loaders = mmengine.runner.checkpoint
    is_web = address.startswith('http')
    return (loaders.load_from_http if is_web else loaders.load_from_local)(address, 'cpu')


def pretrained(address: str, **options: str) -> dict:
    return dict(type='Pretrained', checkpoint=address, **options)


ENTRIES = {
    'loader': lambda address, folder: CheckpointLoader.load_checkpoint(address),
    'its functions': lambda address, folder: call_function(address),
    'load_checkpoint': lambda address, folder: load_checkpoint(Line(), address),
    'load_from': lambda address, folder: make_runner(folder, load_from=address).train(),
    'resume': lambda address, folder: make_runner(folder, load_from=address, resume=True).train(),
    'init_cfg': lambda address, folder: Line(pretrained(address)).init_weights(),
    'init_cfg with a prefix': lambda address, folder: Part(
        pretrained(address, prefix='linear.')
    ).init_weights(),
}


@pytest.fixture
def mark(tmp_path) -> Path:
    """A file that is made by whatever gets to run."""
    return tmp_path / 'mark'


@pytest.mark.parametrize('kind', CRAFTED)
@pytest.mark.parametrize('place', ['file', 'http', 'inline'], indirect=True)
def test_a_crafted_file_is_refused_wherever_it_is(kind, place, mark, tmp_path):
    write, asked = CRAFTED[kind]
    write(tmp_path / 'crafted.pth', mark)

    with pytest.raises((ValueError, ConnectionError)) as refusal:
        CheckpointLoader.load_checkpoint(place(tmp_path / 'crafted.pth'), map_location='cpu')

    message = str(refusal.value)
    for pattern in (asked, NOT_RUN, r'(crafted|inline-pvt-tiny)\.pth'):
        assert re.search(pattern, message)
    assert not mark.exists()


@pytest.mark.parametrize('entry', ENTRIES)
@pytest.mark.parametrize('place', ['file', 'http'], indirect=True)
def test_a_crafted_file_is_refused_whatever_loads_it(entry, place, mark, tmp_path):
    write_call(tmp_path / 'crafted.pth', mark)

    message = r'crafted\.pth.* is refused, and nothing in it was run: it asks for \w+\.system\.'
    with pytest.raises(UnsafeCheckpointError, match=message):
        ENTRIES[entry](place(tmp_path / 'crafted.pth'), tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize('entry', ENTRIES)
@pytest.mark.parametrize('place', ['file', 'http'], indirect=True)
def test_a_real_file_is_loaded_by_each_of_these(entry, place, tmp_path):
    make_runner(tmp_path / 'work').train()

    ENTRIES[entry](place(tmp_path / 'work' / 'epoch_1.pth'), tmp_path)


@pytest.mark.parametrize('kind', [kind for kind in CRAFTED if kind != 'file in a zip'])
def test_the_crafted_files_do_run_without_protection(kind, mark, tmp_path):
    CRAFTED[kind][0](tmp_path / 'crafted.pth', mark)
    try:
        torch.load(tmp_path / 'crafted.pth', weights_only=False)
    except RuntimeError as error:  # a pickle alone is no checkpoint, but was run
        assert 'magic number' in str(error)
    assert mark.exists()


def test_the_file_in_a_zip_does_run_without_protection(server, cache, mark, tmp_path):
    CRAFTED['file in a zip'][0](tmp_path / 'crafted.pth', mark)
    server.serve('/crafted.pth', (tmp_path / 'crafted.pth').read_bytes())
    with pytest.warns(FutureWarning):
        torch.hub.load_state_dict_from_url(f'{server.root}/crafted.pth', progress=False)
    assert mark.exists()


def test_the_environment_cannot_switch_the_protection_off(mark, tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    write_call(tmp_path / 'crafted.pth', mark)
    with pytest.raises(UnsafeCheckpointError):
        CheckpointLoader.load_checkpoint(str(tmp_path / 'crafted.pth'))
    assert not mark.exists()


def test_the_refusal_says_what_to_do(mark, tmp_path):
    write_call(tmp_path / 'crafted.pth', mark)
    with pytest.raises(UnsafeCheckpointError, match='train again, or ask for a file') as refusal:
        CheckpointLoader.load_checkpoint(str(tmp_path / 'crafted.pth'))
    assert 'Only if you trust its author, convert it in a script of your own' in str(refusal.value)
    # torch's own message advises to load the file all the same; it is not shown.
    assert refusal.value.__suppress_context__


def test_a_refused_download_is_not_kept(server, cache, mark, tmp_path):
    write_call(tmp_path / 'crafted.pth', mark)
    server.serve('/crafted.pth', (tmp_path / 'crafted.pth').read_bytes())
    with pytest.raises(UnsafeCheckpointError, match=rf'^{server.root}/crafted\.pth is refused'):
        CheckpointLoader.load_checkpoint(f'{server.root}/crafted.pth')
    assert [path.suffix for path in cache.iterdir()] == ['.lock']


def test_a_crafted_file_in_the_cache_of_torch_hub_is_refused(server, cache, mark):
    cache.mkdir(parents=True)
    write_call(cache / 'swin_tiny.pth', mark)
    with pytest.raises(UnsafeCheckpointError, match=r'kept as .*swin_tiny\.pth\) is refused'):
        CheckpointLoader.load_checkpoint(f'{server.root}/swin_tiny.pth')
    assert not mark.exists()


def test_an_object_of_an_unknown_class_is_refused(tmp_path, monkeypatch):
    settings = type('Settings', (), {'__module__': 'vanished'})
    monkeypatch.setitem(sys.modules, 'vanished', SimpleNamespace(Settings=settings))
    torch.save({'state_dict': {}, 'meta': settings()}, tmp_path / 'a.pth')
    with pytest.raises(UnsafeCheckpointError, match=r'it asks for vanished\.Settings'):
        CheckpointLoader.load_checkpoint(str(tmp_path / 'a.pth'))
