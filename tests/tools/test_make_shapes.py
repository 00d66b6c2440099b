"""``tools/make_shapes.py``: writes once, and replaces a data set on request only."""

from pathlib import Path

import pytest

from mminline.datasets import draw_scene


def read_files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob('*') if path.is_file()}


def test_writing_again_does_nothing_and_other_settings_need_force(run, tmp_path, capsys):
    arguments = ['--root', str(tmp_path / 'shapes'), '--train', '3', '--val', '1', '--size', '64']
    run('make_shapes.py', *arguments)
    written = read_files(tmp_path)
    assert len(written) == 2 * 4 + 2 + 1
    assert 'wrote' in capsys.readouterr().out

    run('make_shapes.py', *arguments)
    assert 'nothing to do' in capsys.readouterr().out
    changes = "train is 3 there, 2 was asked for; level is 'plain' there, 'textured' was asked for"
    with pytest.raises(SystemExit, match=f'make_shapes: .*{changes}.*--force'):
        run('make_shapes.py', *arguments, '--train', '2', '--level', 'textured')
    assert read_files(tmp_path) == written

    run('make_shapes.py', *arguments, '--train', '2', '--force')
    # No scene of the old data set is left behind for mmseg to find.
    assert len(read_files(tmp_path)) == 2 * 3 + 2 + 1


def test_two_sizes_are_the_least_and_the_greatest(run, tmp_path, capsys):
    import mmcv

    arguments = ['--root', str(tmp_path / 'shapes'), '--train', '3', '--val', '1', '--seed', '5']
    run('make_shapes.py', *arguments, '--size', '64', '90')
    for index in range(3):
        path = tmp_path / 'shapes' / 'images' / 'train' / f'{index:06d}.png'
        scene = draw_scene(index, seed=5, size=(64, 90))
        assert (mmcv.imread(path)[..., ::-1] == scene.image_HWC).all()

    run('make_shapes.py', *arguments, '--size', '64', '90')
    assert 'nothing to do' in capsys.readouterr().out
    with pytest.raises(SystemExit, match='size has to be one number, or the least and the'):
        run('make_shapes.py', *arguments, '--size', '64', '90', '91')
