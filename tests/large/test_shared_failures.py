"""Processes that share an image, when one of them cannot go on."""

from pathlib import Path

import pytest

from helpers.large_models import random_image
from helpers.shared_tool import share, write_model
from helpers.tiny_configs import DETECTOR, SEGMENTOR

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_damaged_tiff(name: str) -> None:
    """Write an image of 256 x 96 px whose last rows cannot be decoded."""
    tifffile = pytest.importorskip('tifffile')
    tifffile.imwrite(
        name, random_image(256, 96), photometric='rgb', tile=(64, 64), compression='zlib'
    )
    with tifffile.TiffFile(name) as file:
        offset = file.pages[0].dataoffsets[-1]
    content = bytearray(Path(name).read_bytes())
    content[offset : offset + 50] = bytes(50)
    Path(name).write_bytes(content)


@pytest.mark.parametrize(
    ('kind', 'seen_by'),
    [('segmentor', 'the second'), ('segmentor', 'both'), ('detector', 'both')],
)
def test_a_damaged_part_of_an_image_is_named_once(kind, seen_by):
    write_damaged_tiff('photo.tif')
    files = write_model(dict(segmentor=SEGMENTOR, detector=DETECTOR)[kind])
    # Padding is looked for from the bottom up, so both processes read the last rows for that.
    ignore_padding = f'model.backbone.ignore_padding={seen_by == "both"}'
    out = dict(segmentor='classes.npy', detector='results')[kind]

    result = share(*files, 'photo.tif', '--out', out, '--cfg-options', ignore_padding)

    assert result.returncode
    assert result.stderr.count('photo.tif cannot be read: it is damaged') == 1, result.stderr
    assert not Path(out).exists()
