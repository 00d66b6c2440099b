"""A server, an empty cache, and files at addresses of each kind."""

from pathlib import Path

import pytest

from helpers.server import running_server


@pytest.fixture
def server():
    with running_server() as server:
        yield server


@pytest.fixture
def cache(tmp_path, monkeypatch, server):
    """An empty cache, with the server as the mirror."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'home'))
    monkeypatch.setenv('MMINLINE_WEIGHTS_URL', f'{server.url}/')
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    return tmp_path / 'home' / 'hub' / 'checkpoints'


@pytest.fixture
def place(request, server, cache):
    """Put a file where an address of the kind ``request.param`` finds it; return the address."""

    def put(path: Path) -> str:
        if request.param == 'file':
            return str(path)
        if request.param == 'inline':
            server.serve('/mirror/inline-pvt-tiny.pth', path.read_bytes())
            return 'inline://pvt-tiny'
        server.serve(f'/{path.name}', path.read_bytes())
        return f'{server.root}/{path.name}'

    return put
