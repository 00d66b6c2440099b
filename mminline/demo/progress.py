"""Progress on the screen: what is being done, and how long all will still take."""

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from .commands import show_status

QUIET_SECONDS = 20
# A line of mmengine's log: "Iter(train) [ 10/600]  lr: 1e-4  ...  loss: 3.8546  loss_cls: ..."
STEP = re.compile(r'Iter\((\w+)\) +\[ *(\d+)/(\d+)\](?:.*? loss: ([\d.]+))?')


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f'{minutes}:{seconds:02d}'


class Progress:
    """Times the parts of the demo, of which some run at the same time, and estimates the end.

    Args:
        parts: Each part with the seconds that it takes, about. Only their proportions matter
            once the first of them is on its way.
    """

    def __init__(self, parts: dict[str, float]) -> None:
        self.expected = parts
        self.seconds: dict[str, float] = {}
        self._start = time.monotonic()
        self._last_print = 0.0
        self._shares: dict[str, float] = {}
        self._states: dict[str, str] = {}
        self._interrupted = False

    @contextlib.contextmanager
    def part(self, name: str, title: str) -> Iterator[Callable[[str], None]]:
        """Announce a part, time it, and say how long it took.

        Yields:
            A function that takes notice of each line that a program prints.
        """
        start = time.monotonic()
        number = list(self.expected).index(name) + 1
        title = f'[{number}/{len(self.expected)}] {title}'
        self._shares[name], self._states[name] = 0.0, title
        self._print_status(title)
        yield partial(self._report, name, title)
        del self._shares[name], self._states[name]
        self.seconds[name] = time.monotonic() - start
        show_status('')
        print(f'{title}: {clock(self.seconds[name])}', flush=True)

    def interrupt(self) -> None:
        """End the programs of all parts, each at the next line that it prints."""
        self._interrupted = True

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start

    def time_left(self) -> float:
        """Seconds to the end of the last part, at the pace so far."""
        shares = {**dict.fromkeys(self.seconds, 1.0), **self._shares}
        done = sum(self.expected[part] * share for part, share in shares.items())
        pace = self.elapsed() / done if done else 1.0
        return pace * (sum(self.expected.values()) - done)

    def _report(self, name: str, title: str, line: str) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        step = STEP.search(line)
        if not step:
            return
        kind, done, count, loss = step.groups()
        if kind == 'val':  # a pause in training
            return
        self._shares[name] = int(done) / int(count)
        loss = f', loss {float(loss):.2f}' if loss else ''
        self._states[name] = f'{title}: {done}/{count}{loss}'
        self._print_status(
            f'{"; ".join(self._states.values())}, {clock(self.time_left())} to the end'
        )

    def _print_status(self, text: str) -> None:
        """Rewrite the status line of a terminal; elsewhere print a line now and then."""
        if sys.stdout.isatty():
            show_status(text)
        elif time.monotonic() - self._last_print > QUIET_SECONDS:
            self._last_print = time.monotonic()
            print(f'  {text}', flush=True)
