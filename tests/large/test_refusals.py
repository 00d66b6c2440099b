"""What cannot be computed in parts, read or written is refused, with the reason."""

import sys

import numpy as np
import pytest
from torch import nn

from helpers.large_models import build_segmentor, random_image
from mminline.large import CannotCutError, predict

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def semantic_fpn() -> nn.Module:
    return build_segmentor('semantic_fpn')


class SoftmaxConv(nn.Module):
    """A convolution, and softmax attention over the whole of its map."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.attention = nn.MultiheadAttention(conv.out_channels, 1, batch_first=True)

    def forward(self, map_BCHW):
        x_BLC = self.conv(map_BCHW).flatten(2).transpose(1, 2)
        mixed_BLC, _ = self.attention(x_BLC, x_BLC, x_BLC)
        return mixed_BLC.transpose(1, 2).unflatten(2, map_BCHW.shape[2:])


def test_softmax_attention_over_the_whole_map_is_refused_behind_the_backbone():
    model = build_segmentor('semantic_fpn')
    coarsest = model.neck.lateral_convs[-1]
    coarsest.conv = SoftmaxConv(coarsest.conv).double().eval()

    with pytest.raises(CannotCutError, match='depends on the whole map'):
        predict(model, random_image(64, 64))


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(norm_cfg=dict(type='GN', num_groups=2)), r'decode_head\..* \(GroupNorm\)'),
        (dict(align_corners=True), 'align_corners'),
    ],
)
def test_a_head_that_needs_the_whole_map_is_refused(options, message):
    model = build_segmentor('semantic_fpn', **options)

    with pytest.raises(CannotCutError, match=message):
        predict(model, random_image(64, 64))


def test_resizing_by_the_size_of_the_map_is_refused():
    model = build_segmentor('segformer')
    model.decode_head.align_corners = True  # inside the head only

    with pytest.raises(CannotCutError, match='decode_head give other values on a part'):
        predict(model, random_image(64, 64))


@pytest.mark.parametrize(
    ('image', 'options', 'message'),
    [
        (np.zeros((64, 64), np.uint8), {}, r'shape \(height, width, 3\), got \(64, 64\)'),
        (random_image(64, 64), dict(band_rows=16), 'band_rows has to be at least 32'),
        (random_image(64, 64), dict(out='classes.jpg'), r'a file \.png, \.tif, .*classes\.jpg'),
    ],
)
def test_a_bad_argument_is_named(semantic_fpn, image, options, message):
    with pytest.raises(ValueError, match=message):
        predict(semantic_fpn, image, **options)


@pytest.mark.parametrize(
    ('out', 'error', 'message'),
    [
        ('maps.npy', ValueError, r'has to be a file, and .*maps\.npy is a folder'),
        ('map.tif', ModuleNotFoundError, r'map\.tif cannot be written without tifffile: pip'),
        ('file/map.png', OSError, 'files cannot be written to .*file: Not a directory'),
    ],
)
def test_an_output_that_cannot_be_written_is_named_before_anything_runs(
    semantic_fpn, out, error, message, tmp_path, monkeypatch
):
    (tmp_path / 'maps.npy').mkdir()
    (tmp_path / 'file').write_text('no folder')
    monkeypatch.setitem(sys.modules, 'tifffile', None)  # as if it were not installed
    steps = []

    with pytest.raises(error, match=message):
        predict(semantic_fpn, random_image(64, 64), out=tmp_path / out, report=steps.append)

    assert steps == []
