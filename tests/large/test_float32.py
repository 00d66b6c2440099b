"""Class maps in parts in float32: steps round a cell alike in a part and in the whole map."""

import numpy as np
import pytest
import torch

from helpers.large_models import SEGMENTORS, build_segmentor, ordinary_classes, random_image
from mminline.large import predict
from mminline.large import segmentor as segmentors
from mminline.large.backbone import compute_maps
from mminline.large.image import ModelImage
from mminline.large.tiles import split_image

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('threads', [1, 2])
@pytest.mark.parametrize('kind', SEGMENTORS)
@torch.inference_mode()
def test_every_bit_of_float32_scores_is_that_of_the_whole_at_once(kind, threads, set_threads):
    # Channels enough that PyTorch takes the same kernel for maps of the whole and of parts.
    set_threads(threads)
    model = build_segmentor(kind, channels=128).float()
    image = ModelImage(model, random_image(700, 590))
    maps = compute_maps(model.backbone, image, lambda *_: None)
    expected = model(image.rows(0, image.padded_shape[0]), mode='tensor')
    stride = image.padded_shape[0] // expected.shape[2]
    tiled = segmentors.TiledSegmentor(model, maps)
    halo = tiled.find_halo()

    for tile_shape in [(224, 2048), (352, 416)]:
        for tiles in split_image(image.padded_shape, tile_shape, halo):
            for tile in tiles:
                (scores,) = tiled.run(maps.slices(tile), tile, maps)
                part = expected[
                    ...,
                    tile.rows.start // stride : tile.rows.stop // stride,
                    tile.columns.start // stride : tile.columns.stop // stride,
                ]
                assert torch.equal(tile.crop(scores, stride), part), tile


@pytest.mark.parametrize('kind', SEGMENTORS)
def test_no_pixel_differs_in_float32(kind):
    model = build_segmentor(kind, channels=128).float()
    image = random_image(700, 590)

    expected = ordinary_classes(model, image)

    for rows in (None, 200, 300):
        np.testing.assert_array_equal(predict(model, image, band_rows=rows), expected)
