"""Free memory: of the machine, within the limit of a container, and where neither is known."""

import os

import pytest
import torch

from mminline.large import free_memory, memory
from mminline.large.free_memory import free_bytes

CPU = torch.device('cpu')
MEGABYTE = 1 << 20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Stand-ins for the files of Linux, with 64 MB available and no control group."""
    names = dict(MEMINFO='meminfo', OWN_GROUPS='cgroup', GROUPS='groups')
    for constant, name in names.items():
        monkeypatch.setattr(free_memory, constant, tmp_path / name)
    (tmp_path / 'meminfo').write_text('MemTotal: 131072 kB\nMemAvailable: 65536 kB\n')
    return tmp_path


def limit_group(folder, files: tuple[str, str, str], limit: object) -> None:
    """Write the files of a group that uses 10 MB, 3 MB of them for a cache."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(files, (limit, 10 * MEGABYTE), strict=False):
        (folder / name).write_text(f'{value}\n')
    (folder / 'memory.stat').write_text(f'anon 5\n{files[2]} {3 * MEGABYTE}\n')


def test_without_a_container_it_is_that_of_the_machine(system):
    assert free_bytes(CPU) == 64 * MEGABYTE


@pytest.mark.parametrize('version', [1, 2])
@pytest.mark.parametrize('limited', ['', 'slice', 'slice/own', 'elsewhere'])
def test_the_limit_of_a_container_counts_wherever_it_is(system, version, limited):
    own = {1: '4:memory:/slice/own\n1:cpu:/other\n', 2: '0::/slice/own\n'}[version]
    (system / 'cgroup').write_text(own)
    root = system / 'groups' / ('memory' if version == 1 else '')
    files = free_memory.GROUP_FILES[2 - version]
    limit_group(root / limited, files, 30 * MEGABYTE)

    assert free_bytes(CPU) == (64 if limited == 'elsewhere' else 23) * MEGABYTE


def test_a_group_without_a_limit_does_not_count(system):
    (system / 'cgroup').write_text('0::/\n')
    limit_group(system / 'groups', free_memory.GROUP_FILES[0], 'max')

    assert free_bytes(CPU) == 64 * MEGABYTE


def test_a_group_that_is_over_its_limit_has_nothing_left(system):
    (system / 'cgroup').write_text('0::/\n')
    limit_group(system / 'groups', free_memory.GROUP_FILES[0], MEGABYTE)

    assert free_bytes(CPU) == 0


def test_other_systems_than_linux_are_asked_for_all_memory(system, monkeypatch):
    (system / 'meminfo').unlink()
    sizes = dict(SC_PHYS_PAGES=1000, SC_PAGE_SIZE=4096)
    monkeypatch.setattr(os, 'sysconf', sizes.__getitem__, raising=False)

    assert free_bytes(CPU) == 1000 * 4096 // 2

    monkeypatch.delattr(os, 'sysconf')
    assert free_bytes(CPU) == free_memory.ASSUMED_BYTES


def test_processes_that_share_an_image_share_the_memory_for_tiles(monkeypatch):
    monkeypatch.setattr(memory, 'free_bytes', lambda device: 3_000_000_000)
    alone = memory.tile_budget(CPU)
    monkeypatch.setattr(memory, 'count_processes', lambda: 3)
    assert memory.tile_budget(CPU) == alone // 3 == 500_000_000
