"""Files that are written as a whole or not at all."""

import errno
from pathlib import Path

import cv2
import numpy as np
import pytest

from mminline.predictions import check_folder, save_classes, whole_file, write_image

PICTURE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
WRITERS = dict(
    data=lambda path: save_classes(path, PICTURE[..., 0], 256),
    picture=lambda path: write_image(path, PICTURE),
)


@pytest.fixture
def fail(monkeypatch):
    """Let writing end with an error halfway through."""

    def arrange(error: BaseException) -> None:
        write = Path.write_bytes

        def write_half(path, content):
            write(path, content[: len(content) // 2])
            raise error

        monkeypatch.setattr(Path, 'write_bytes', write_half)

    return arrange


@pytest.mark.parametrize('kind', WRITERS)
def test_a_full_disk_is_named_and_leaves_the_older_file(tmp_path, kind, fail):
    path = tmp_path / 'a.png'
    path.write_text('an older one')
    fail(OSError(errno.ENOSPC, 'No space left on device'))

    with pytest.raises(OSError, match=r'a\.png cannot be written: No space left on device'):
        WRITERS[kind](path)

    assert [each.name for each in tmp_path.iterdir()] == ['a.png']
    assert path.read_text() == 'an older one'


@pytest.mark.parametrize('kind', WRITERS)
def test_an_interruption_leaves_nothing(tmp_path, kind, fail):
    fail(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        WRITERS[kind](tmp_path / 'a.png')

    assert list(tmp_path.iterdir()) == []


def test_each_of_several_writers_has_its_own_unfinished_file(tmp_path):
    path = tmp_path / 'a.txt'

    with whole_file(path) as first:
        first.write_text('the first one')
        with whole_file(path) as second:
            second.write_text('the second one')
        assert path.read_text() == 'the second one'
        with pytest.raises(KeyboardInterrupt), whole_file(path) as third:
            third.write_text('half of the')
            raise KeyboardInterrupt
        assert path.read_text() == 'the second one'

    assert path.read_text() == 'the first one'
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_permissions_of_any_new_file(tmp_path):
    with whole_file(tmp_path / 'whole') as unfinished:
        unfinished.write_text('a')
    (tmp_path / 'plain').write_text('a')

    whole, plain = (tmp_path / name for name in ('whole', 'plain'))
    assert whole.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize('suffix', ['.bmp', '.jpg', '.png', '.tif', '.webp'])
def test_pictures_are_those_that_opencv_writes(tmp_path, suffix):
    write_image(tmp_path / f'ours{suffix}', PICTURE)
    cv2.imwrite(str(tmp_path / f'theirs{suffix}'), PICTURE)

    ours, theirs = (cv2.imread(str(tmp_path / f'{name}{suffix}')) for name in ('ours', 'theirs'))
    np.testing.assert_array_equal(ours, theirs)


def test_a_format_that_opencv_does_not_have_is_named(tmp_path):
    with pytest.raises(OSError, match=r'a\.text cannot be written'):
        write_image(tmp_path / 'a.text', PICTURE)


def test_new_folders_are_made_when_a_file_is_written_and_not_by_the_check(tmp_path):
    check_folder(tmp_path / 'new' / 'folder')
    assert list(tmp_path.iterdir()) == []

    with whole_file(tmp_path / 'new' / 'folder' / 'a.txt') as path:
        path.write_text('a')

    assert (tmp_path / 'new' / 'folder' / 'a.txt').read_text() == 'a'


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / 'file').write_text('no folder')

    with pytest.raises(OSError, match='files cannot be written to .*/file/new: Not a directory'):
        check_folder(tmp_path / 'file' / 'new')
