"""Attributes of modules that are others for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn


@contextlib.contextmanager
def replaced(module: nn.Module, name: str, value: Any) -> Iterator[None]:
    """Give a module an attribute of its own, and put back what it had, if it had one."""
    own = vars(module)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)
