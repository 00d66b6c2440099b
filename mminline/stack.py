"""Checks of the installed packages: missing ones, and two stacks in one environment."""

import importlib.metadata
import warnings
from importlib.util import find_spec

# Distributions of the same modules: the original ones and the maintained forks.
CLASSIC = ('mmengine', 'mmcv', 'mmcv-lite', 'mmdet', 'mmsegmentation', 'openmim')
FORKS = ('onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'onedl-mmsegmentation', 'onedl-mim')
CLASH_CURE = 'Uninstall all of them, then install one stack.'
# What backbones need, and how to get it.
NEEDED = {
    'torch': 'install it as https://pytorch.org/get-started/locally/ says',
    'mmengine': 'pip install mmengine',
    'mmcv': 'build it with its compiled operators as the README says, or, for backbones without '
    'detectors, pip install "mmcv-lite<2.2"',
}


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
    return dict(classic=_installed(CLASSIC), onedl=_installed(FORKS))


def _installed(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if find_version(name)]


def describe_clash() -> str | None:
    """Name the packages that overwrite each other's modules; None if there are none.

    The original mim works with the forks, if theirs is not there.
    """
    forks = _installed(FORKS)
    # Metadata of installed packages is read from disk: only if it can matter.
    classic = _installed(CLASSIC) if forks else []
    if classic and not (classic == ['openmim'] and 'onedl-mim' not in forks):
        return (
            'Two stacks with the same modules are installed over each other: '
            f'{", ".join(classic)} and {", ".join(forks)}.'
        )
    if find_version('mmcv-lite') and find_version('mmcv'):
        return 'mmcv and mmcv-lite have the same modules and are installed over each other.'
    return None


def warn_of_clash() -> None:
    """Say so if packages are installed over each other, whoever imports mminline."""
    if clash := describe_clash():
        warnings.warn(f'{clash} {CLASH_CURE}', stacklevel=3)


def find_missing() -> list[str]:
    """List the packages that backbones need and that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def explain_missing(name: str, missing: list[str]) -> str:
    """Say what a name of mminline needs, and how to get it."""
    cures = '; '.join(f'for {package}, {NEEDED[package]}' for package in missing)
    return f'mminline.{name} needs {" and ".join(missing)}, not installed here: {cures}.'
