"""Settings that have to stand before torch is imported, and the set-up program as a module."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

# On virtual machines that offer AMX without letting it run, a product of bfloat16 tensors kills
# Python; this is the best instruction set below it.
os.environ.setdefault('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16')


@pytest.fixture
def installer(monkeypatch):
    """``requirements/install.py``, which is a program and in no package."""
    monkeypatch.setattr(sys, 'path', [*sys.path])  # it adds tools/
    path = Path(__file__).parents[1] / 'requirements' / 'install.py'
    spec = importlib.util.spec_from_file_location('install', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
