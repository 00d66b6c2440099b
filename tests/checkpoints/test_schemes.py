"""Addresses that mmengine knows, read by us.

Stands on mmengine alone, so that it runs on each stack that is supported.
"""

import re
import zipfile
from pathlib import Path

import pytest
import torch
from mmengine.fileio import register_backend
from mmengine.fileio.backends import BaseStorageBackend
from mmengine.runner import CheckpointLoader
from mmengine.runner import checkpoint as mmengine_loading

from helpers.crafted import CRAFTED
from mminline.checkpoints import UnsafeCheckpointError, schemes

NAMED = ('torchvision', 'modelzoo', 'open-mmlab', 'openmmlab', 'mmcls')
write_call, _ = CRAFTED['call of the system']


@pytest.fixture
def mark(tmp_path) -> Path:
    """A file that is made by whatever gets to run."""
    return tmp_path / 'mark'


@pytest.fixture
def name_address(monkeypatch):
    """Put an address into each table of names that mmengine has, as ``model``."""

    def name(address: str) -> None:
        for table in ('get_torchvision_models', 'get_external_models', 'get_mmcls_models'):
            monkeypatch.setattr(schemes, table, lambda: {'model': address})
        monkeypatch.setattr(schemes, 'get_deprecated_model_names', lambda: {'old': 'model'})

    return name


def test_no_loader_of_mmengine_is_left():
    for prefix, loader in CheckpointLoader._schemes.items():
        assert loader.__module__ == schemes.__name__, prefix


@pytest.mark.parametrize('scheme', NAMED)
def test_a_crafted_file_behind_a_name_is_refused(
    scheme, name_address, server, cache, mark, tmp_path
):
    write_call(tmp_path / 'crafted.pth', mark)
    server.serve('/crafted.pth', (tmp_path / 'crafted.pth').read_bytes())
    name_address(f'{server.root}/crafted.pth')
    with pytest.raises(UnsafeCheckpointError, match=r'crafted\.pth is refused'):
        CheckpointLoader.load_checkpoint(f'{scheme}://model')
    assert not mark.exists()


@pytest.mark.parametrize('scheme', NAMED)
def test_a_real_file_behind_a_name_is_read(scheme, name_address, server, cache, tmp_path):
    weights = {'backbone.weight': torch.ones(1), 'head.weight': torch.zeros(1)}
    torch.save({'state_dict': weights, 'meta': {}}, tmp_path / 'real.pth')
    server.serve('/real.pth', (tmp_path / 'real.pth').read_bytes())
    name_address(f'{server.root}/real.pth')
    loaded = CheckpointLoader.load_checkpoint(f'{scheme}://model')['state_dict']
    assert loaded == ({'weight': torch.ones(1)} if scheme == 'mmcls' else weights)


def test_the_tables_of_mmengine_have_the_names(server, cache, monkeypatch):
    asked = []
    monkeypatch.setattr(schemes, 'load_from_http', lambda url, device: {'asked': asked.append(url)})
    for name in ('open-mmlab://vgg16_caffe', 'openmmlab://resnet50_caffe', 'mmcls://vgg11'):
        CheckpointLoader.load_checkpoint(name)
    for url, file in zip(asked, ('vgg16_caffe', 'resnet50_caffe-788b5fa3', 'vgg11'), strict=True):
        assert url.startswith('https://') and file in url


def test_a_deprecated_name_stands_for_its_successor_and_may_be_a_file(
    name_address, mark, tmp_path, monkeypatch
):
    monkeypatch.setenv('MMENGINE_HOME', str(tmp_path))
    name_address('listed.pth')
    torch.save({'state_dict': {}}, tmp_path / 'listed.pth')
    assert CheckpointLoader.load_checkpoint('openmmlab://old') == {'state_dict': {}}
    write_call(tmp_path / 'listed.pth', mark)
    with pytest.raises(UnsafeCheckpointError, match=r'listed\.pth is refused'):
        CheckpointLoader.load_checkpoint('openmmlab://old')
    assert not mark.exists()


@pytest.mark.parametrize('address', ['s3://bucket/a.pth', 'cluster:petrel://bucket/a.pth'])
def test_object_storage_is_read_as_safely(address, mark, tmp_path):
    class Storage(BaseStorageBackend):
        def get(self, filepath):
            return (tmp_path / 'a.pth').read_bytes()

        def get_text(self, filepath):
            raise NotImplementedError

    register_backend('petrel', Storage, force=True)
    torch.save({'state_dict': {}}, tmp_path / 'a.pth')
    assert CheckpointLoader.load_checkpoint(address) == {'state_dict': {}}
    write_call(tmp_path / 'a.pth', mark)
    with pytest.raises(UnsafeCheckpointError, match=f'^{address} is refused'):
        CheckpointLoader.load_checkpoint(address)
    assert not mark.exists()


def test_an_address_that_only_mmengine_could_read_is_refused():
    with pytest.raises(ValueError, match='pavi://a cannot be read safely: download the file'):
        CheckpointLoader.load_checkpoint('pavi://a')


def test_a_file_in_the_cache_of_torch_hub_is_used(server, cache):
    cache.mkdir(parents=True)
    torch.save({'state_dict': {}}, cache / 'swin_tiny.pth')
    assert CheckpointLoader.load_checkpoint(f'{server.root}/swin_tiny.pth') == {'state_dict': {}}
    assert server.requests == []


def test_addresses_that_end_alike_or_without_a_name_are_kept_apart(server, cache, tmp_path):
    paths = ('/one/epoch_12.pth', '/two/epoch_12.pth', '/three/?dl=1')
    for number, path in enumerate(paths):
        torch.save({'number': number}, tmp_path / 'a.pth')
        server.serve(path, (tmp_path / 'a.pth').read_bytes())
    for _ in range(2):
        for number, path in enumerate(paths):
            loaded = CheckpointLoader.load_checkpoint(f'{server.root}{path}')
            assert loaded == {'number': number}
    assert server.requests == list(paths)


@pytest.mark.skipif(torch.cuda.is_available(), reason='needs a machine without CUDA')
def test_a_device_that_is_not_there_is_told_in_the_words_of_torch(tmp_path):
    torch.save({'weight': torch.ones(1)}, tmp_path / 'cpu.pth')
    with (
        zipfile.ZipFile(tmp_path / 'cpu.pth') as cpu,
        zipfile.ZipFile(tmp_path / 'cuda.pth', 'w') as cuda,
    ):
        for name in cpu.namelist():
            body = cpu.read(name).replace(b'X\x03\x00\x00\x00cpu', b'X\x06\x00\x00\x00cuda:0')
            cuda.writestr(name, body)
    with pytest.raises(RuntimeError, match='map_location'):
        CheckpointLoader.load_checkpoint(str(tmp_path / 'cuda.pth'))
    loaded = CheckpointLoader.load_checkpoint(str(tmp_path / 'cuda.pth'), map_location='cpu')
    assert loaded['weight'] == 1


def test_a_folder_or_nothing_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / 'missing.pth'):
        with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
            CheckpointLoader.load_checkpoint(str(path))


def test_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    torch.save({}, tmp_path / 'a.pth')
    assert CheckpointLoader.load_checkpoint('~/a.pth') == {}


@pytest.mark.parametrize(
    'name', ['local', 'http', 'torchvision', 'openmmlab', 'mmcls', 'ceph', 'pavi']
)
def test_mmengine_has_no_loading_function_of_its_own(name):
    function = getattr(mmengine_loading, f'load_from_{name}')

    assert function is getattr(schemes, f'load_from_{name}')
