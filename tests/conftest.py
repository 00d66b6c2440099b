"""Settings that have to stand before torch is imported, and fixtures of several folders."""

import importlib.metadata
import os
import runpy
import sys
from pathlib import Path

import pytest

# On virtual machines that offer AMX without letting it run, a product of bfloat16 tensors kills
# Python; this is the best instruction set below it.
os.environ.setdefault('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16')


@pytest.fixture(scope='session')
def shapes(tmp_path_factory) -> Path:
    """Shapes, of a few small scenes."""
    from mminline.datasets import write_shapes

    root = tmp_path_factory.mktemp('data') / 'shapes'
    write_shapes(root, train=4, val=2, size=64)
    return root


@pytest.fixture
def run(monkeypatch):
    """Run a tool in this process, as from the command line."""
    tools = Path(__file__).parents[1] / 'tools'

    def run_tool(name: str, *arguments: object) -> None:
        monkeypatch.setattr(sys, 'argv', [name, *map(str, arguments)])
        runpy.run_path(str(tools / name), run_name='__main__')

    return run_tool


@pytest.fixture
def set_threads():
    """Set the number of threads of torch, until the end of the test."""
    import torch

    num_threads = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(num_threads)


@pytest.fixture
def installed(monkeypatch):
    """Pretend that these distributions are installed, and no others."""

    def pretend(*names: str) -> None:
        def version(name):
            if name not in names:
                raise importlib.metadata.PackageNotFoundError(name)
            return '1.0'

        monkeypatch.setattr(importlib.metadata, 'version', version)

    return pretend
