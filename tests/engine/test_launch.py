"""Devices of the processes of a launcher. No GPU is needed: torch is asked through stand-ins."""

import pytest
import torch

from mminline.engine.launch import choose_device


@pytest.fixture
def current(monkeypatch) -> list[int]:
    """Numbers that were made the current device, of two."""
    numbers = []
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.setattr(torch.cuda, 'set_device', numbers.append)
    return numbers


def test_each_process_has_a_gpu_of_its_own(current, monkeypatch):
    for rank in ('0', '1'):
        monkeypatch.setenv('LOCAL_RANK', rank)
        assert choose_device('cuda', 'pytorch') == f'cuda:{rank}'

    assert current == [0, 1]


@pytest.mark.parametrize(
    ('device', 'launcher'), [('cuda', 'none'), ('cpu', 'pytorch'), ('cuda:1', 'pytorch')]
)
def test_other_devices_stay(current, monkeypatch, device, launcher):
    monkeypatch.setenv('LOCAL_RANK', '1')

    assert choose_device(device, launcher) == device
    assert current == []


def test_more_processes_than_gpus_are_refused(current, monkeypatch):
    monkeypatch.setenv('LOCAL_RANK', '2')

    with pytest.raises(ValueError, match='there are 2 for at least 3 processes'):
        choose_device('cuda', 'pytorch')
