"""Description of the machine, printed with every table."""

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

PACKAGES = ('torch', 'mmengine', 'mmcv', 'mmdet', 'timm')


def describe_machine(device: str) -> dict:
    """Describe hardware, software and load."""
    import mminline

    return dict(
        cpu=_cpu_model(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        load=os.getloadavg()[0],
        memory_bytes=os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'),
        gpu=torch.cuda.get_device_name() if device == 'cuda' else None,
        python=platform.python_version(),
        versions={name: _version(name) for name in PACKAGES} | {'mminline': mminline.__version__},
        date=datetime.datetime.now().astimezone().isoformat(timespec='seconds'),
        revision=git_revision(Path(__file__).parent),
    )


def git_revision(folder: Path) -> str | None:
    """Commit of a checkout, with '-dirty' if it has changes; None outside of git."""
    command = ['git', 'describe', '--always', '--dirty']
    try:
        git = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return git.stdout.strip() or None


def machine_line(machine: dict) -> str:
    """Describe the machine in one line."""
    versions = ', '.join(
        f'{name} {number}' for name, number in machine['versions'].items() if number
    )
    processor = machine['gpu'] or f'{machine["cpu"]}, {machine["threads"]} threads'
    return f'{processor}; {versions}; load {machine["load"]:.1f} at the start; {machine["date"]}'


def _cpu_model() -> str:
    model = re.search(r'model name\s*: (.+)', Path('/proc/cpuinfo').read_text())
    return model.group(1) if model else platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
