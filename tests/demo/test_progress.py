"""Progress of the demo: time left, and lines that are printed."""

import time

import pytest

from mminline.demo.progress import Progress


def test_the_time_left_follows_the_pace(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    progress = Progress(dict(train=100.0, test=20.0))

    with progress.part('train', 'training') as report:
        now[0] = 100.0  # twice as slow as expected
        report('... Iter(train) [300/600]  lr: 1e-3  loss: 1.2345  loss_cls: 0.5')
        left = progress.time_left()
        now[0] = 101.0
        report('... Iter(train) [310/600]  lr: 1e-3  loss: 1.1  loss_cls: 0.5')
        now[0] = 200.0

    assert left == pytest.approx(2 * (50 + 20))
    printed = capsys.readouterr().out
    assert '[1/2] training: 300/600, loss 1.23, 2:20 to the end' in printed
    assert '310/600' not in printed  # not a terminal: a line now and then
    assert '[1/2] training: 3:20' in printed
    assert progress.seconds == dict(train=200.0)


def test_parts_at_the_same_time_are_shown_together(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    progress = Progress(dict(first=100.0, second=100.0))

    with progress.part('first', 'one') as first, progress.part('second', 'two') as second:
        now[0] = 30.0
        first('Iter(train) [10/100]  loss: 2.0')
        now[0] = 60.0
        second('Iter(train) [50/100]  loss: 1.0')

    expected = '[1/2] one: 10/100, loss 2.00; [2/2] two: 50/100, loss 1.00, 2:20 to the end'
    assert expected in capsys.readouterr().out
