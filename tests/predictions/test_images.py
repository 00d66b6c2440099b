"""Image files: found, read, written."""

import cv2
import numpy as np
import pytest

from mminline.predictions import find_images, read_image, write_image


def test_images_of_a_folder_are_found_in_order(tmp_path):
    for name in ('b.JPG', 'a.png', 'notes.txt'):
        (tmp_path / name).touch()
    (tmp_path / 'folder' / 'inner').mkdir(parents=True)
    (tmp_path / 'folder' / 'inner' / 'c.png').touch()

    assert [path.name for path in find_images(tmp_path)] == ['a.png', 'b.JPG']
    assert find_images(tmp_path / 'notes.txt') == [tmp_path / 'notes.txt']
    with pytest.raises(FileNotFoundError, match='There is no image in'):
        find_images(tmp_path / 'folder')
    with pytest.raises(FileNotFoundError, match='There is no file or folder'):
        find_images(tmp_path / 'nowhere')


@pytest.mark.parametrize('content', [b'', b'text'])
def test_what_is_no_image_is_refused(tmp_path, content):
    (tmp_path / 'a.png').write_bytes(content)

    with pytest.raises(ValueError, match='empty, cut off or no image'):
        read_image(tmp_path / 'a.png')


@pytest.mark.parametrize(('name', 'written'), [('a.png', 'a.png'), ('a.npy', 'a.npy.png')])
def test_a_picture_is_read_as_it_was_written(tmp_path, name, written):
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)

    write_image(tmp_path / 'new' / name, picture)

    np.testing.assert_array_equal(read_image(tmp_path / 'new' / written), picture)


def test_a_picture_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(cv2, 'imencode', lambda *_: (False, None))

    with pytest.raises(OSError, match=r'a\.png cannot be written'):
        write_image(tmp_path / 'a.png', np.zeros((2, 2, 3), np.uint8))
