"""``Stopwatch`` adds up the seconds of steps."""

import pytest

from mminline.engine.stopwatch import Stopwatch


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """Time that a test sets itself."""
    now = [0.0]
    monkeypatch.setattr('time.perf_counter', lambda: now[0])
    return now


def test_seconds_are_added_up_and_divided_by_the_count(clock):
    stopwatch = Stopwatch()

    def read():
        for number in range(2):
            clock[0] += 3
            yield number

    for _ in stopwatch.measure_items('read', read()):
        clock[0] += 50  # belongs to no step
        with stopwatch.measure('predict'):
            clock[0] += 0.5

    assert stopwatch.seconds == dict(read=6, predict=1)
    assert stopwatch.describe(count=2) == 'read 3, predict 0.5'


def test_a_step_that_fails_counts_too(clock):
    stopwatch = Stopwatch()
    with pytest.raises(ValueError, match='broken'), stopwatch.measure('read'):
        clock[0] += 2
        raise ValueError('broken')

    assert stopwatch.describe(count=1) == 'read 2'
