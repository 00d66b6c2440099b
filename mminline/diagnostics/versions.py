"""Versions of what mminline works with, and devices."""

import platform
from pathlib import Path

import torch

from ..stack import CLASSIC, FORKS, find_version

OTHERS = ('torch', 'torchvision', 'numpy', 'opencv-python', 'timm', 'setuptools', 'onnxruntime')


def collect_versions() -> dict[str, str]:
    """Versions of mminline, of all packages that are installed, of Python and the system."""
    versions = {name: find_version(name) for name in ('mminline', *CLASSIC, *FORKS, *OTHERS)}
    versions |= dict(Python=platform.python_version(), system=platform.platform())
    return {name: version for name, version in versions.items() if version}


def describe_devices() -> list[str]:
    """Name the devices that torch can use, the CPU first."""
    capability = torch.backends.cpu.get_cpu_capability()
    devices = [f'CPU: {cpu_name()}, {torch.get_num_threads()} threads, {capability}']
    devices += [
        f'cuda:{index}: {torch.cuda.get_device_name(index)}'
        for index in range(torch.cuda.device_count())
    ]
    if torch.backends.mps.is_available():
        devices.append('mps: Apple GPU')
    return devices


def cpu_name() -> str:
    """Name the processor, as far as the system tells."""
    path = Path('/proc/cpuinfo')
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.partition(':')[2].strip() for line in lines if line.startswith('model name'))
    return next(names, '') or platform.processor() or platform.machine()
