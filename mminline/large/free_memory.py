"""How much memory is free."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import torch

MEMINFO = Path('/proc/meminfo')
OWN_GROUPS = Path('/proc/self/cgroup')
GROUPS = Path('/sys/fs/cgroup')
# Limit, use, and what of the use is a cache of files: version 2 of control groups, then version 1.
GROUP_FILES = (
    ('memory.max', 'memory.current', 'inactive_file'),
    ('memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file'),
)
# Where the system does not say it.
ASSUMED_BYTES = 4 << 30


def free_bytes(device: torch.device) -> int:
    """Memory that can still be used on a device; on a CPU, within the limit of a container."""
    if device.type == 'cuda':
        return torch.cuda.mem_get_info(device)[0]
    return int(min(_free_in_machine(), *map(_free_in_group, _own_groups()), math.inf))


def _free_in_machine() -> int:
    if MEMINFO.exists():
        for line in MEMINFO.read_text().splitlines():
            name, value = line.split(':')
            if name == 'MemAvailable':
                return 1024 * int(value.split()[0])
    try:
        # What is free is not known on every system; half of all memory is a guess.
        return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2
    except (AttributeError, OSError, ValueError):
        return ASSUMED_BYTES


def _own_groups() -> Iterator[Path]:
    """Folders of the control groups of this process: a limit may be in any of them."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(':', 2)
        if not controllers or 'memory' in controllers.split(','):
            root = GROUPS / ('memory' if controllers else '')
            folder = root / name.lstrip('/')
            # In a container, the group may be the root of what can be seen.
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(root))


def _free_in_group(folder: Path) -> float:
    for limit, used, cache in GROUP_FILES:
        try:
            sizes = [int((folder / each).read_text()) for each in (limit, used)]
            statistics = dict(
                line.split() for line in (folder / 'memory.stat').read_text().splitlines()
            )
        except (OSError, ValueError):  # no such file, or 'max'
            continue
        # The cache of files that were read is given back when memory is needed.
        return max(sizes[0] - sizes[1] + int(statistics.get(cache, 0)), 0)
    return math.inf
