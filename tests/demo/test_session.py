"""Demo: folders of earlier runs, runs side by side."""

import os
import time

import pytest

from mminline.demo import DemoError, session
from mminline.demo.progress import Progress


def test_results_of_an_earlier_demo_are_kept(tmp_path, capsys):
    folder = tmp_path / 'demo'
    for number in range(3):
        session.prepare_folder(folder)
        assert [path.name for path in folder.iterdir()] == ['demo.log']
        (folder / 'results.json').write_text(str(number))

    assert (tmp_path / 'demo.1' / 'results.json').read_text() == '0'
    assert (tmp_path / 'demo.2' / 'results.json').read_text() == '1'
    assert str(tmp_path / 'demo.2') in capsys.readouterr().out


def test_what_an_interrupted_demo_left_is_replaced(tmp_path):
    session.prepare_folder(tmp_path)
    (tmp_path / 'mask_rcnn').mkdir()

    session.prepare_folder(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ['demo.log']


def test_a_run_that_fails_ends_the_others(tmp_path, monkeypatch):
    started = []

    def fail_or_wait(run, seed, progress):
        if run == 'fails':
            raise DemoError('no disk')
        with progress.part('waits', 'waiting') as report:
            started.append(run)
            for _ in range(200):
                time.sleep(0.05)
                report('a line')
            started.append('came to the end')

    monkeypatch.setattr(session, 'train_and_test', fail_or_wait)
    monkeypatch.setattr(os, 'cpu_count', lambda: 2)
    with pytest.raises(DemoError, match='no disk'):
        session.run_all(['waits', 'fails'], 0, Progress(dict(waits=1.0)))

    assert started == ['waits']


def test_the_folder_of_mim_is_there_before_two_start_at_once(tmp_path, monkeypatch):
    # mim makes it when it is imported, and the slower of two would fail on a fresh machine.
    monkeypatch.setenv('HOME', str(tmp_path))
    found = []
    monkeypatch.setattr(
        session,
        'train_and_test',
        lambda run, seed, progress: found.append((tmp_path / '.cache' / 'mim').is_dir()),
    )

    session.run_all(['first', 'second'], 0, Progress({}))

    assert found == [True, True]
