"""Class maps in parts against those of the whole image at once."""

import weakref

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from torch import nn

from helpers.large_models import (
    SEGMENTORS,
    balance,
    build_segmentor,
    ordinary_classes,
    random_image,
)
from mminline import execution
from mminline.large import memory, predict
from mminline.large import segmentor as segmentors
from mminline.large.backbone import compute_maps
from mminline.large.image import ModelImage
from mminline.large.tiles import split_image

pytestmark = pytest.mark.slow

# Height and width: odd ones, ones without padding, a band of one unit.
SHAPES = [(333, 517), (512, 256), (70, 801)]


@pytest.fixture(scope='module', params=SEGMENTORS)
def segmentor(request) -> nn.Module:
    return build_segmentor(request.param)


@pytest.fixture(scope='module')
def semantic_fpn() -> nn.Module:
    return build_segmentor('semantic_fpn')


@pytest.mark.parametrize('shape', SHAPES)
def test_no_pixel_differs_from_the_whole_at_once(segmentor, shape, monkeypatch):
    image = random_image(*shape)
    expected = ordinary_classes(segmentor, image)
    assert len(np.unique(expected)) > 1

    for rows in (None, 32, 100):
        np.testing.assert_array_equal(predict(segmentor, image, band_rows=rows), expected)
    monkeypatch.setattr(memory, 'TILE_BYTES', 1 << 20)  # tiles narrower than the image
    np.testing.assert_array_equal(predict(segmentor, image), expected)


@torch.inference_mode()
def test_pieces_of_a_gpu_give_the_classes_that_rows_give(semantic_fpn, monkeypatch):
    monkeypatch.setattr(segmentors, 'PIECE_COLUMNS', 16)
    monkeypatch.setattr(segmentors, 'PIECE_BYTES', 1 << 16)
    image = ModelImage(semantic_fpn, random_image(333, 517))
    maps = compute_maps(semantic_fpn.backbone, image, lambda *_: None)
    tiled = segmentors.TiledSegmentor(semantic_fpn, maps)
    tile = list(split_image(image.padded_shape, (128, 160), 64))[1][1]
    (scores_1CHW,) = tiled.run(maps.slices(tile), tile, maps)

    rows = tiled._choose_by_rows(scores_1CHW[0], tile)

    assert len(rows.unique()) > 1
    assert torch.equal(tiled._choose_in_pieces(scores_1CHW, tile), rows.int())


def test_a_narrower_halo_would_not_do(semantic_fpn, monkeypatch):
    image = random_image(333, 517)
    expected = ordinary_classes(semantic_fpn, image)
    monkeypatch.setattr(segmentors, 'find_halo', lambda *_: 32)

    assert (predict(semantic_fpn, image, band_rows=64) != expected).any()


def test_pooling_of_a_part_would_not_do(monkeypatch):
    upernet = build_segmentor('upernet')
    image = random_image(333, 517)
    expected = ordinary_classes(upernet, image)
    monkeypatch.setattr(segmentors.WholePooling, 'on_tile', lambda *_: torch.no_grad())
    monkeypatch.setattr(segmentors, 'find_halo', lambda *_: 128)

    assert (predict(upernet, image, band_rows=64) != expected).any()


def test_lines_that_look_like_padding_are_left_out_as_in_the_whole(semantic_fpn):
    # The backbone leaves out lines at the end whose pixels are all the mean.
    semantic_fpn.data_preprocessor.mean = semantic_fpn.data_preprocessor.mean.round()
    image = random_image(200, 300)
    image[150:] = image[:, 260:] = semantic_fpn.data_preprocessor.mean.flatten().flip(0).numpy()

    expected = ordinary_classes(semantic_fpn, image)

    np.testing.assert_array_equal(predict(semantic_fpn, image, band_rows=64), expected)


def test_padding_that_is_computed_is_computed_in_parts_too(semantic_fpn, monkeypatch):
    monkeypatch.setattr(semantic_fpn.backbone, 'ignore_padding', False)
    image = random_image(200, 300)

    expected = ordinary_classes(semantic_fpn, image)

    np.testing.assert_array_equal(predict(semantic_fpn, image, band_rows=64), expected)


def test_one_class_is_compared_with_the_threshold():
    model = build_segmentor('semantic_fpn')
    model.decode_head.conv_seg = nn.Conv2d(8, 1, 1).double()
    model.decode_head.threshold = 0.5
    balance(model)
    image = random_image(128, 160)

    expected = ordinary_classes(model, image)

    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(predict(model, image, band_rows=32), expected)


class OtherBackbone(nn.Module):
    """A backbone of another project, as far as this one can tell."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, image):
        return self.backbone(image)


def test_another_backbone_gets_the_image_at_once():
    model = build_segmentor('semantic_fpn')
    model.backbone = OtherBackbone(model.backbone)
    image = random_image(200, 300)

    expected = ordinary_classes(model, image)

    np.testing.assert_array_equal(predict(model, image, band_rows=64), expected)


def test_softmax_attention_of_another_project_runs_in_the_backbone():
    # Its maps are local to the neck and the head, so these are cut; the backbone is not.
    model = build_segmentor('semantic_fpn')
    sizes = dict(num_stages=4, num_layers=[1] * 4, num_heads=[1, 1, 2, 2], mlp_ratios=[2] * 4)
    backbone = dict(type='mmdet.PyramidVisionTransformer', embed_dims=8, pretrain_img_size=64)
    model.backbone = MODELS.build(backbone | sizes).double().eval()
    for conv, width in zip(model.neck.lateral_convs, (8, 8, 16, 16), strict=True):
        conv.conv = nn.Conv2d(width, 8, 1).double()
    balance(model)
    image = random_image(100, 150)

    expected = ordinary_classes(model, image)

    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(predict(model, image, band_rows=64), expected)


def test_colours_in_the_other_order_may_be_a_view(semantic_fpn):
    image = random_image(64, 96)

    expected = predict(semantic_fpn, image[..., ::-1].copy())

    np.testing.assert_array_equal(predict(semantic_fpn, image[..., ::-1]), expected)


def test_tokens_of_a_stage_are_dropped_before_the_next_one_runs(monkeypatch):
    # Swin's outputs are normalised copies of them.
    model, run = build_segmentor('upernet'), execution.run
    alive = {}

    def watch(block, x_BLC, *args):
        for channels, storage in alive.items():
            assert channels == x_BLC.shape[2] or storage() is None
        out_BLC = run(block, x_BLC, *args)
        alive[x_BLC.shape[2]] = weakref.ref(out_BLC.untyped_storage())
        return out_BLC

    monkeypatch.setattr(execution, 'run', watch)
    predict(model, random_image(64, 96))

    assert len(alive) == 4


def test_progress_is_reported(semantic_fpn):
    seen = []
    predict(semantic_fpn, random_image(128, 64), 64, report=lambda *step: seen.append(step))

    assert seen[:6] == [('backbone', done, 6) for done in range(1, 7)]
    assert seen[6:] == [('neck and head', 1, 2), ('neck and head', 2, 2)]
