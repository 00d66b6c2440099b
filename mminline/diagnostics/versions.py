"""Versions of what mminline works with, and devices."""

import importlib.metadata
import platform
from pathlib import Path

import torch

# Distributions of the same modules: the original ones and the maintained forks.
CLASSIC = ('mmengine', 'mmcv', 'mmdet', 'mmsegmentation', 'openmim')
FORKS = ('onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'onedl-mmsegmentation', 'onedl-mim')
OTHERS = ('torch', 'torchvision', 'numpy', 'opencv-python', 'timm', 'setuptools', 'onnxruntime')


def collect_versions() -> dict[str, str]:
    """Versions of mminline, of all packages that are installed, of Python and the system."""
    versions = {name: find_version(name) for name in ('mminline', *CLASSIC, *FORKS, *OTHERS)}
    versions |= dict(Python=platform.python_version(), system=platform.platform())
    return {name: version for name, version in versions.items() if version}


def find_version(distribution: str) -> str | None:
    """Version of a distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def stacks() -> dict[str, list[str]]:
    """Distributions of the original packages and of the forks that are installed.

    The two have the same modules, so only one of them can work.
    """
    found = dict(classic=CLASSIC, onedl=FORKS)
    return {kind: [name for name in names if find_version(name)] for kind, names in found.items()}


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
