"""Processes that share an image, when one of them cannot go on."""

import time
from pathlib import Path

import mmcv
import pytest

from helpers.large_models import random_image
from helpers.shared_tool import share, write_model
from helpers.tiny_configs import DETECTOR, SEGMENTOR

pytestmark = pytest.mark.slow

# The first process computes on and on; the second is killed when the first has begun its file.
KILLER = """
import os, signal, time
from pathlib import Path
from mminline.large.segmentor import TiledSegmentor

def classify(self, tile):
    while True:
        if os.environ['RANK'] == '1' and any(Path().glob('.classes.tif.*')):
            Path('killed').write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)

TiledSegmentor.classify = classify
"""


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


def test_a_killed_process_ends_the_others_and_leaves_no_file(folder):
    pytest.importorskip('tifffile')
    mmcv.imwrite(random_image(130, 200), 'photo.png')
    Path('killer.py').write_text(KILLER)
    files = write_model(SEGMENTOR + "custom_imports = dict(imports=['killer'])\n")

    result = share(*files, 'photo.png', '--out', 'classes.tif')

    assert time.time() - float(Path('killed').read_text()) < 60
    assert result.returncode
    assert 'Ended by SIGTERM, which torchrun sends' in result.stderr
    assert not list(folder.glob('*classes.tif*'))
