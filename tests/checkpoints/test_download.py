"""The ``inline://`` scheme, against a server of our own."""

import re
import subprocess
import sys
import threading

import pytest
import torch
from mmengine.runner import CheckpointLoader

from helpers import golden
from helpers.crafted import CRAFTED, NOT_RUN
from mminline.checkpoints import download, read_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def published(tmp_path_factory):
    """A file with the keys and shapes of InLine-PVT-T, one number behind each tensor."""
    shapes = golden.official_shapes('inline-pvt-t')
    path = tmp_path_factory.mktemp('published') / 'official.pth'
    torch.save(
        {'model': {key: torch.zeros(1).expand(shape) for key, shape in shapes.items()}}, path
    )
    return path.read_bytes()


TINY = '/mirror/inline-pvt-tiny.pth'


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != '.lock')


def test_published_weights_are_downloaded_once(server, cache, published):
    server.serve(TINY, published)
    for _ in range(2):
        checkpoint = CheckpointLoader.load_checkpoint('inline://pvt-tiny', map_location='cpu')
        assert checkpoint['model'].keys() == golden.official_shapes('inline-pvt-t').keys()
    assert server.requests == [TINY]
    assert files(cache) == ['inline-pvt-tiny.pth']
    assert (cache / 'inline-pvt-tiny.pth').read_bytes() == published


def test_progress_is_shown_in_a_terminal(server, cache, published, monkeypatch, capsys):
    server.serve(TINY, published)
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
    read_checkpoint('inline://pvt-tiny')
    assert re.search(r'100(\.0)?%', capsys.readouterr().err)


def test_a_download_that_breaks_off_is_tried_again_and_then_an_error(server, cache, published):
    server.serve(TINY, published[: len(published) // 2], length=len(published))
    message = rf'broke off after {len(published) // 2:,} of {len(published):,} bytes'
    with pytest.raises(ConnectionError, match=message):
        read_checkpoint('inline://pvt-tiny')
    assert server.requests == [TINY] * 3
    assert files(cache) == []


def test_a_download_that_breaks_off_once_succeeds(server, cache, published):
    server.serve(
        TINY, published[:999], length=len(published), then=lambda: server.serve(TINY, published)
    )
    assert read_checkpoint('inline://pvt-tiny').keys() == {'model'}
    assert server.requests == [TINY] * 2


def test_a_server_that_falls_silent_is_an_error(server, cache, published, monkeypatch):
    monkeypatch.setattr(download, 'SILENCE', 0.05)
    waiting = threading.Event()
    server.serve(TINY, published[:999], length=len(published), then=waiting.wait)
    try:
        with pytest.raises(ConnectionError, match='timed out'):
            read_checkpoint('inline://pvt-tiny')
    finally:
        waiting.set()
    assert files(cache) == []


def test_a_file_that_was_cut_off_at_the_source_does_not_take_the_name(server, cache, published):
    server.serve(TINY, published[: len(published) // 2])
    with pytest.raises(ConnectionError, match='it sent an archive that is cut off'):
        read_checkpoint('inline://pvt-tiny')
    assert files(cache) == []


def test_a_web_page_instead_of_a_file_does_not_take_the_name(server, cache):
    server.serve(TINY, b'<!DOCTYPE html><html><body>This link has expired</body></html>')
    with pytest.raises(ConnectionError, match=r'it sent a web page \(62 bytes\)'):
        read_checkpoint('inline://pvt-tiny')
    assert files(cache) == []


def test_weights_of_another_model_do_not_take_the_name(server, cache, published):
    server.serve('/mirror/inline-pvt-small.pth', published)
    with pytest.raises(ConnectionError, match='it sent the weights of pvt-tiny, not pvt-small'):
        read_checkpoint('inline://pvt-small')
    assert files(cache) == []


def test_a_missing_file_is_not_tried_again(server, cache):
    with pytest.raises(ConnectionError, match='HTTP Error 404'):
        read_checkpoint('inline://swin-base')
    assert server.requests == ['/mirror/inline-swin-base.pth']


def test_without_a_network_the_error_says_what_to_put_where(cache, monkeypatch):
    monkeypatch.delenv('MMINLINE_WEIGHTS_URL')
    # The published link, through a proxy that is not there.
    monkeypatch.setenv('https_proxy', 'http://127.0.0.1:9')
    link = re.escape('https://cloud.tsinghua.edu.cn/f/32810869fcc34410966b/?dl=1')
    advice = rf'put it as inline-swin-tiny\.pth into {re.escape(str(cache))}$'
    with pytest.raises(ConnectionError, match=rf'no checkpoint from {link}: .*{advice}'):
        read_checkpoint('inline://swin-tiny')


def test_a_file_put_there_by_hand_is_used(server, cache, published):
    cache.mkdir(parents=True)
    (cache / 'inline-pvt-tiny.pth').write_bytes(published)
    assert read_checkpoint('inline://pvt-tiny').keys() == {'model'}
    assert server.requests == []
    assert [path.name for path in cache.iterdir()] == ['inline-pvt-tiny.pth']


def test_a_published_link_is_the_name_that_it_stands_for(server, cache, published):
    server.serve(TINY, published)
    assert read_checkpoint(download.PUBLISHED['pvt-tiny'].url).keys() == {'model'}
    assert server.requests == [TINY]
    assert files(cache) == ['inline-pvt-tiny.pth']


def test_an_unknown_name_is_an_error_that_lists_the_names(server, cache):
    names = 'inline://pvt-tiny, .*, inline://deit-base'
    with pytest.raises(ValueError, match=f'one of {names}, got inline://pvt-huge$'):
        read_checkpoint('inline://pvt-huge')


@pytest.mark.parametrize('scheme', ['inline', 'http'])
def test_two_processes_at_once_download_once(scheme, server, cache, published):
    address = 'inline://pvt-tiny' if scheme == 'inline' else f'{server.root}{TINY}'
    both_ask, second_request = threading.Event(), threading.Event()

    def hold():
        """Answer the first only when the second had the time to ask as well."""
        if len(server.requests) > 1:
            second_request.set()
        both_ask.wait(timeout=120)
        second_request.wait(timeout=0.5)

    server.serve(TINY, published, first=hold)
    code = (
        'import mminline\n'
        'from mmengine.runner import CheckpointLoader\n'
        'print("asks", flush=True)\n'
        f'CheckpointLoader.load_checkpoint("{address}")'
    )
    processes = [
        subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == 'asks\n'
    both_ask.set()
    for process in processes:
        process.communicate(timeout=120)
    assert [process.returncode for process in processes] == [0, 0]
    assert server.requests == [TINY]


def test_web_addresses_are_kept_apart(server, cache, published, tmp_path):
    torch.save({'model': torch.ones(1)}, tmp_path / 'other.pth')
    server.serve('/one/epoch_12.pth', published)
    server.serve('/two/epoch_12.pth', (tmp_path / 'other.pth').read_bytes())

    first, second = (
        read_checkpoint(f'{server.root}/{folder}/epoch_12.pth') for folder in ('one', 'two')
    )

    assert len(first['model']) > 100
    assert torch.equal(second['model'], torch.ones(1))
    assert len(files(cache)) == 2


@pytest.mark.parametrize('kind', CRAFTED)
def test_a_crafted_file_of_a_web_address_is_refused_and_not_kept(kind, server, cache, tmp_path):
    write, asked = CRAFTED[kind]
    write(tmp_path / 'crafted.pth', tmp_path / 'mark')
    server.serve('/crafted.pth', (tmp_path / 'crafted.pth').read_bytes())

    with pytest.raises((ValueError, ConnectionError), match=asked) as refusal:
        read_checkpoint(f'{server.root}/crafted.pth')

    assert re.search(rf'{server.root}/crafted\.pth.* {NOT_RUN}', str(refusal.value))
    assert not (tmp_path / 'mark').exists()
    assert files(cache) == []
