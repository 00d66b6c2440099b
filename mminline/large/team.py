"""Processes that share an image, as seen by one of them: what it tells the others and gets."""

from typing import Any

import torch.distributed as dist
from torch import Tensor

from ..execution.slabs import named_errors


class Team:
    """A process that has the image to itself."""

    is_first = True

    def gather(self, value: Any) -> list | None:
        """Values of all processes, from the top slab to the bottom one; None but in the first."""
        return [value]

    def ask(self, value: Any = None) -> Any:
        """Value that the first process has, in all of them."""
        return value

    def add_up(self, x: Tensor) -> Tensor:
        """Sum over the processes, in the first one."""
        return x


class SharedTeam(Team):
    """Several processes, of which the first has the result.

    Args:
        group: Processes in the order of their slabs, from top to bottom.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.is_first = dist.get_rank(group) == 0

    def gather(self, value: Any) -> list | None:
        values = [None] * dist.get_world_size(self.group) if self.is_first else None
        with named_errors(self.group):
            dist.gather_object(value, values, group=self.group, group_dst=0)
        return values

    def ask(self, value: Any = None) -> Any:
        values = [value]
        with named_errors(self.group):
            dist.broadcast_object_list(values, group=self.group, group_src=0)
        return values[0]

    def add_up(self, x: Tensor) -> Tensor:
        with named_errors(self.group):
            dist.reduce(x, group=self.group, group_dst=0)
        return x
