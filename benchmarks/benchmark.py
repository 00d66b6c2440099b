"""Definitions: a benchmark has cases, a case compares candidates on the same input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plots import plot_bars
from torch import Tensor, nn


@dataclass(frozen=True)
class Candidate:
    """One implementation under measurement.

    Args:
        name: Label of its row in the tables.
        runner: Class of ``runners`` that runs the model.
        build: Builds the model. Picklable, because memory is measured in other processes.
        group: Candidates of one group have the same weights, so their results have to agree.
        device: The only device it is measured on; None for every device.
    """

    name: str
    runner: Callable[[Callable[[], nn.Module]], Any]
    build: Callable[[], nn.Module]
    group: str | None = None
    device: str | None = None

    def start(self, device: str) -> Any:
        """Build the model on a device, ready to be called."""
        runner = self.runner(self.build)
        runner.model.to(device)
        return runner


@dataclass(frozen=True)
class Case:
    """Candidates and their common input.

    Args:
        name: First part of the title of its table.
        shape: Height and width of the image.
        make_input: Makes the arguments of a runner from height and width. Picklable.
        candidates: All are compared with the first one.
    """

    name: str
    shape: tuple[int, int]
    make_input: Callable[[int, int], tuple]
    candidates: Sequence[Candidate]

    @property
    def title(self) -> str:
        """Title of its table."""
        return f'{self.name}, image of {self.shape[1]} x {self.shape[0]}'

    def inputs(self, shape: tuple[int, int], device: str) -> tuple:
        """Make the arguments of a runner, tensors on the device."""
        return tuple(
            value.to(device) if isinstance(value, Tensor) else value
            for value in self.make_input(*shape)
        )


@dataclass(frozen=True)
class Benchmark:
    """One command of ``run.py``.

    Args:
        description: Line of the help.
        make_cases: Builder of the cases, called with the options as keyword arguments.
        defaults: Options of the command with their default values. Each becomes an argument of
            the builder, except ``repeats``, the number of rounds of timing (default: 1).
        summary: Makes a table over all measured cases, printed at the end.
        plot: Draws the measured cases into a file.
        growing: Whether cases grow: a candidate that is skipped stays skipped in later ones.
        measure: Measures a case instead of ``measure.measure_case``.
        time_limit: Default of ``--time-limit``, in seconds.
    """

    description: str
    make_cases: Callable[..., list[Case]]
    defaults: dict[str, Any]
    summary: Callable[[list[dict]], str] | None = None
    plot: Callable[[list[dict], Path], None] = plot_bars
    growing: bool = False
    measure: Callable[..., dict] | None = None
    time_limit: float = 60.0


@dataclass(frozen=True)
class Settings:
    """Settings of the measurement, explained by the help of ``run.py``."""

    device: str
    threads: int
    repeats: int
    time_limit: float
    tolerance: float
    memory: bool = True
