"""``tools/demo.py``: what it refuses, and how it ends."""

import pytest

from mminline.datasets import write_shapes
from mminline.demo import session

pytestmark = pytest.mark.slow


def test_a_folder_of_something_else_is_left_alone(run, tmp_path):
    (tmp_path / 'thesis.tex').touch()

    with pytest.raises(SystemExit, match='--work-dir has to be empty or of an earlier demo'):
        run('demo.py', '--work-dir', tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


def test_a_file_is_no_folder_for_results(run, tmp_path):
    (tmp_path / 'file').touch()

    with pytest.raises(SystemExit, match='--work-dir has to be a folder, got .*file'):
        run('demo.py', '--work-dir', tmp_path / 'file')


def test_other_data_in_the_place_of_shapes_is_named(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shapes('data/shapes', train=1, val=1, size=64)

    with pytest.raises(SystemExit, match='train is 1 there.*Move data/shapes away'):
        run('demo.py')


def test_a_bad_seed_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        run('demo.py', '--seed', '-1')

    assert '--seed has to be at least 0, got --seed -1' in capsys.readouterr().err


def test_an_interrupted_demo_says_how_to_go_on(run, tmp_path, monkeypatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, 'draw_data', interrupt)

    with pytest.raises(SystemExit, match='interrupted; run it again, it starts from the beginning'):
        run('demo.py', '--work-dir', tmp_path / 'demo')
