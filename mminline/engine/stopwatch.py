"""Seconds that the steps of a program take."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar('Item')


class Stopwatch:
    """Adds up the seconds of each step, in the order in which steps begin first."""

    def __init__(self) -> None:
        self.seconds = defaultdict(float)

    @contextlib.contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a step, also if it ends with an error."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] += time.perf_counter() - begin

    def measure_items(self, step: str, items: Iterable[Item]) -> Iterator[Item]:
        """Hand on items, and add the time that it takes to get them to a step."""
        iterator = iter(items)
        while True:
            with self.measure(step):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def describe(self, count: int) -> str:
        """List the seconds of each step, divided by how often they were done."""
        return ', '.join(f'{step} {total / count:.3g}' for step, total in self.seconds.items())
