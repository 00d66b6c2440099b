"""Stacks that mminline runs on: the same modules, from other distributions or of other versions.

A stack is an entry here and a file of pins, ``requirements/<stack>.txt``. Standard library only.
"""

from typing import NamedTuple


class Stack(NamedTuple):
    """What tells stacks apart where pins cannot.

    Args:
        mmcv: Distribution of mmcv, which is compiled.
        mmcv_version: Its version.
        folder: Name of the environment.
    """

    mmcv: str
    mmcv_version: str
    folder: str


STACKS = {
    # The original packages.
    'openmmlab': Stack('mmcv', '2.1.0', '.venv'),
    # Forks of them that are maintained.
    'onedl': Stack('onedl-mmcv', '2.3.6', '.venv-onedl'),
    # The original packages with the next version of mmengine.
    'mmengine-0.11': Stack('mmcv', '2.1.0', '.venv-mmengine-0.11'),
}
DEFAULT = 'openmmlab'
