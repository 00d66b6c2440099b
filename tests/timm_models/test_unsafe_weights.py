"""Crafted files are refused by the models of timm, whoever reads them."""

import importlib
import re

import pytest

from helpers.crafted import CRAFTED, NOT_RUN
from helpers.server import running_server


@pytest.fixture
def timm():
    """timm with our models, imported no earlier than here: other tests pretend it is missing."""
    timm = pytest.importorskip('timm', exc_type=ImportError)
    importlib.import_module('mminline.timm_models')
    return timm


@pytest.mark.parametrize('kind', CRAFTED)
@pytest.mark.parametrize('place', ['file', 'http', 'inline'])
def test_a_crafted_file_is_refused_by_the_bridge(kind, place, timm, tmp_path, monkeypatch):
    write, asked = CRAFTED[kind]
    write(tmp_path / 'crafted.pth', tmp_path / 'mark')
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'home'))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    with running_server() as server:
        monkeypatch.setenv('MMINLINE_WEIGHTS_URL', server.url)
        for path in ('/crafted.pth', '/mirror/inline-pvt-tiny.pth'):
            server.serve(path, (tmp_path / 'crafted.pth').read_bytes())
        weights = {
            'file': dict(file=str(tmp_path / 'crafted.pth')),
            'http': dict(url=f'{server.root}/crafted.pth'),
            'inline': None,
        }[place]
        with pytest.raises((ValueError, ConnectionError), match=asked) as refusal:
            timm.create_model('inline_pvt_tiny', pretrained=True, pretrained_cfg_overlay=weights)
    assert re.search(NOT_RUN, str(refusal.value))
    assert not (tmp_path / 'mark').exists()


def test_a_crafted_file_is_refused_by_timm_itself(timm, tmp_path):
    # Since timm 1.0.26; older ones run it.
    CRAFTED['call of the system'][0](tmp_path / 'crafted.pth', tmp_path / 'mark')
    with pytest.raises(RuntimeError, match='weights_only=True blocked'):
        timm.create_model('inline_pvt_tiny', checkpoint_path=str(tmp_path / 'crafted.pth'))
    assert not (tmp_path / 'mark').exists()
