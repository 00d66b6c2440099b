"""The words of the benchmark: contenders, the cases in which they meet, settings of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Contender:
    """One of those that are compared.

    Args:
        name: Its row in the tables.
        kind: How its model is run, a class of ``programs``.
        build: Makes the model; picklable, for memory is measured in other processes.
        group: Contenders of one group have the same weights, so their results have to agree.
    """

    name: str
    kind: Callable[[Callable[[], nn.Module]], Any]
    build: Callable[[], nn.Module]
    group: str | None = None

    def start(self, device: str) -> Any:
        """The program to be called, with its model on the device."""
        program = self.kind(self.build)
        program.model.to(device)
        return program


@dataclass(frozen=True)
class Case:
    """Contenders that get the same input.

    Args:
        name: What they have in common.
        shape: Height and width of the image.
        make_input: From height and width to the arguments of a program; picklable.
        contenders: The first one is what all others are compared with.
    """

    name: str
    shape: tuple[int, int]
    make_input: Callable[[int, int], tuple]
    contenders: tuple[Contender, ...]

    @property
    def title(self) -> str:
        """Title of its table."""
        return f'{self.name}, image of {self.shape[1]} x {self.shape[0]}'

    def inputs(self, shape: tuple[int, int], device: str) -> tuple:
        """Arguments of a program, tensors on the device."""
        return tuple(
            value.to(device) if isinstance(value, Tensor) else value
            for value in self.make_input(*shape)
        )


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Args:
        device: 'cpu' or 'cuda'.
        threads: Threads of PyTorch on the CPU.
        repeats: Rounds in which each contender is timed once.
        time_limit: Seconds for a contender in a case: slow ones get fewer rounds, and those
            that need longer for one call are left out.
        tolerance: Largest difference of results that have to agree, relative to the largest
            value.
    """

    device: str
    threads: int
    repeats: int
    time_limit: float
    tolerance: float
