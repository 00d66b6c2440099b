"""Progress of the demo on the screen: what is being done, and how long all will still take."""

import contextlib
import re
import sys
import time
from collections.abc import Iterator

import _support

QUIET_SECONDS = 20
# A line of mmengine's log: "Iter(train) [ 10/600]  lr: 1e-4  ...  loss: 3.8546  loss_cls: ..."
STEP = re.compile(r'Iter\((\w+)\) +\[ *(\d+)/(\d+)\](?:.*? loss: ([\d.]+))?')


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f'{minutes}:{seconds:02d}'


class Progress:
    """Times the parts of the demo and foretells the end.

    Args:
        parts: Each part with the seconds that it takes, about. Only their proportions matter
            once the first of them is on its way.
    """

    def __init__(self, parts: dict[str, float]) -> None:
        self.expected = parts
        self.seconds: dict[str, float] = {}
        self._begin = time.monotonic()
        self._said = 0.0
        self._title = ''
        self._begun = 0.0
        self._share = 0.0

    @contextlib.contextmanager
    def part(self, name: str, title: str) -> Iterator[None]:
        """Announce a part, time it, and say how long it took."""
        begin = time.monotonic()
        self._title = f'[{len(self.seconds) + 1}/{len(self.expected)}] {title}'
        self._begun, self._share = self.expected[name], 0.0
        self._say(self._title)
        yield
        self.seconds[name] = time.monotonic() - begin
        _support.show_status('')
        print(f'{self._title}: {clock(self.seconds[name])}', flush=True)

    def report(self, line: str) -> None:
        """Take notice of a line that a program printed."""
        step = STEP.search(line)
        if not step:
            return
        kind, done, count, loss = step.groups()
        if kind == 'val':  # a pause in training
            return
        self._share = int(done) / int(count)
        loss = f', loss {float(loss):.2f}' if loss else ''
        self._say(f'{self._title}: {done}/{count}{loss}, {clock(self.time_left())} to the end')

    def time_left(self) -> float:
        """Seconds to the end of the last part, at the pace so far."""
        done = sum(self.expected[part] for part in self.seconds) + self._share * self._begun
        pace = (time.monotonic() - self._begin) / done if done else 1.0
        return pace * (sum(self.expected.values()) - done)

    def _say(self, text: str) -> None:
        """Rewrite the status line of a terminal; elsewhere print a line now and then."""
        if sys.stdout.isatty():
            _support.show_status(text)
        elif time.monotonic() - self._said > QUIET_SECONDS:
            self._said = time.monotonic()
            print(f'  {text}', flush=True)
