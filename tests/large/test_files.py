"""Reading images and writing class maps in bands."""

import resource
import signal
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest

from helpers.large_models import random_image
from mminline.large import open_image
from mminline.large.writers import save_class_map

tifffile = pytest.importorskip('tifffile')
TIFFS = dict(
    tiled=dict(tile=(64, 48)),
    compressed=dict(tile=(64, 64), compression='zlib', predictor=True),
    strips=dict(rowsperstrip=50),
)


def bands(classes_HW: np.ndarray, rows: int):
    return (classes_HW[top : top + rows] for top in range(0, len(classes_HW), rows))


@pytest.mark.parametrize('suffix', ['.png', '.tif', '.npy'])
@pytest.mark.parametrize('dtype', [np.uint8, np.uint16])
def test_a_class_map_is_read_as_it_was_written(tmp_path, suffix, dtype):
    classes = np.random.default_rng(0).integers(0, 200, (301, 517)).astype(dtype)
    path = save_class_map(
        tmp_path / 'new' / f'map{suffix}', bands(classes, 100), classes.shape, classes.dtype
    )

    read = np.load(path) if suffix == '.npy' else mmcv.imread(path, 'unchanged')

    assert read.dtype == dtype
    np.testing.assert_array_equal(read, classes)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize('suffix', ['.png', '.tif', '.npy'])
def test_an_interrupted_file_leaves_nothing(tmp_path, suffix):
    path = tmp_path / f'map{suffix}'
    path.write_text('an older one')

    def interrupted():
        yield np.zeros((300, 300), np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_class_map(path, interrupted(), (600, 300), np.dtype(np.uint8))

    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == 'an older one'


@pytest.mark.parametrize('suffix', ['.png', '.tif', '.npy'])
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(0, 255, (512, 512)).astype(np.uint8)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=rf'map{suffix} cannot be written: File too large'):
            save_class_map(tmp_path / f'map{suffix}', bands(noise, 64), noise.shape, noise.dtype)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('kind', TIFFS)
def test_bands_of_a_tiff_are_its_rows(tmp_path, kind):
    image = random_image(210, 130)
    tifffile.imwrite(tmp_path / 'image.tif', image[..., ::-1], photometric='rgb', **TIFFS[kind])

    opened = open_image(tmp_path / 'image.tif')

    assert not isinstance(opened, np.ndarray)
    assert opened.shape == image.shape
    for top, bottom in ((0, 210), (0, 10), (60, 130), (200, 300)):
        np.testing.assert_array_equal(opened[top:bottom], image[top:bottom])


def test_other_files_are_read_at_once(tmp_path):
    image = random_image(64, 48)
    for name in ('image.png', 'grey.tif', 'deep.tif'):
        pixels = image[..., 0] if name == 'grey.tif' else image
        cv2.imwrite(str(tmp_path / name), pixels.astype(np.uint16) if 'deep' in name else pixels)
        np.testing.assert_array_equal(
            open_image(tmp_path / name)[0:64], mmcv.imread(tmp_path / name)
        )
    np.save(tmp_path / 'image.npy', image)
    assert isinstance(open_image(tmp_path / 'image.npy'), np.memmap)


@pytest.mark.parametrize('kind', TIFFS)
def test_a_tiff_that_is_cut_off_is_refused_before_anything_runs(tmp_path, kind):
    path = tmp_path / 'image.tif'
    tifffile.imwrite(path, random_image(210, 130), photometric='rgb', **TIFFS[kind])
    whole = path.read_bytes()
    for size in (len(whole) - 100, len(whole) // 2, 20, 3):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r'image\.tif cannot be read'):
            open_image(path)


@pytest.mark.parametrize(('nodata', 'value'), [(None, 0), ('7', 7), ('-9999', 0)])
@pytest.mark.parametrize('kind', TIFFS)
@pytest.mark.parametrize('missing', [0, 1])
def test_parts_that_a_tiff_leaves_out_are_filled(tmp_path, kind, missing, nodata, value):
    # GDAL writes them with SPARSE_OK, by an offset and a size of zero.
    path, image = tmp_path / 'image.tif', random_image(210, 130)
    tags = [(42113, 's', 0, nodata, True)] if nodata else []
    tifffile.imwrite(path, image[..., ::-1], photometric='rgb', extratags=tags, **TIFFS[kind])
    with tifffile.TiffFile(path, mode='r+') as file:
        page = file.pages[0]
        height, width = page.chunks[:2]
        offsets, counts = list(page.dataoffsets), list(page.databytecounts)
        offsets[missing] = counts[missing] = 0
        names = 'TileOffsets', 'TileByteCounts', 'StripOffsets', 'StripByteCounts'
        for tag in (page.tags[name] for name in names if name in page.tags):
            tag.overwrite(offsets if 'Offsets' in tag.name else counts)

    columns = -(-130 // width)
    top, left = missing // columns * height, missing % columns * width
    image[top : top + height, left : left + width] = value
    np.testing.assert_array_equal(open_image(path)[0:210], image)


def test_a_tiff_for_opencv_that_is_cut_off_is_refused_too(tmp_path):
    path = tmp_path / 'image.tif'
    deep = random_image(210, 130).astype(np.uint16)
    tifffile.imwrite(path, deep, photometric='rgb', tile=(64, 64))
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(ValueError, match=r'image\.tif cannot be read: it is cut off'):
        open_image(path)


def test_damaged_pixels_are_named(tmp_path):
    path = tmp_path / 'image.tif'
    tifffile.imwrite(path, random_image(210, 130), photometric='rgb', **TIFFS['compressed'])
    with tifffile.TiffFile(path) as file:
        offset = file.pages[0].dataoffsets[-1]
    content = bytearray(path.read_bytes())
    content[offset : offset + 50] = bytes(50)
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r'image\.tif cannot be read: it is damaged'):
        open_image(path)[200:210]


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('text.png', b'no image', 'it is empty, cut off or no image'),
        ('text.npy', b'no array', 'cannot be read'),
        ('nowhere.png', None, 'There is no image'),
    ],
)
def test_what_is_no_image_is_named(tmp_path: Path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_image(tmp_path / name)
