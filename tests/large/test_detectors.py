"""Instances in parts against those of the whole image at once."""

import numpy as np
import pytest
import torch
from mmcv.ops import RoIAlign
from pycocotools import mask
from torch import nn

from helpers.instances import compare
from helpers.large_models import DETECTORS, build_detector, ordinary_instances, random_image
from mminline.apis import set_precision
from mminline.large import CannotCutError, detector, memory, predict
from mminline.large.masks import paste_as_runs
from mminline.large.regions import pool_from_tiles
from mminline.large.tiles import split_image
from mminline.models import ignore_padding

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module', params=DETECTORS)
def model(request) -> nn.Module:
    return build_detector(request.param)


@pytest.mark.parametrize('shape', [(333, 517), (512, 256)])
def test_instances_are_those_of_the_whole_at_once(model, shape, monkeypatch):
    image = random_image(*shape)
    expected = ordinary_instances(model, image)

    for rows in (None, 32, 100):
        assert compare(predict(model, image, band_rows=rows), expected) < 1e-3
    monkeypatch.setattr(memory, 'TILE_BYTES', 1 << 20)
    assert compare(predict(model, image), expected) < 1e-3


@pytest.mark.parametrize('kind', DETECTORS)
def test_neck_and_heads_that_ignore_padding_do_so_in_parts(kind):
    model = build_detector(kind)
    ignore_padding(model)
    image = random_image(333, 517)
    expected = ordinary_instances(model, image)

    for rows in (None, 32):
        assert compare(predict(model, image, band_rows=rows), expected) < 1e-3


def test_a_narrower_halo_would_not_do(monkeypatch):
    model = build_detector('retinanet')
    image = random_image(333, 517)
    expected = ordinary_instances(model, image)
    monkeypatch.setattr(detector, 'find_halo', lambda *_: 0)

    with pytest.raises(AssertionError):
        compare(predict(model, image, band_rows=32), expected)


def test_the_model_is_left_as_it_was(model):
    image = random_image(96, 128)
    before = ordinary_instances(model, image)

    predict(model, image)

    after = ordinary_instances(model, image)
    torch.testing.assert_close(after.bboxes, before.bboxes, rtol=0, atol=0)
    if 'masks' in before:
        assert torch.equal(after.masks, before.masks)


@pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')
def test_parts_that_keep_float32_do_so_afterwards():
    model = build_detector('mask_rcnn')
    set_precision(model, 'bfloat16')
    with pytest.raises(ValueError, match='large images run in float32'):
        predict(model, random_image(96, 128))
    set_precision(model, 'float32')
    before = [dict(vars(module)) for module in model.modules()]

    predict(model, random_image(96, 128))

    for module, attributes in zip(model.modules(), before, strict=True):
        assert vars(module).get('forward') is attributes.get('forward')


def test_no_instance_at_all():
    model = build_detector('mask_rcnn')
    model.roi_head.test_cfg.score_thr = 1.0

    found = predict(model, random_image(96, 128))

    assert len(found) == 0
    assert found.masks == []


def test_masks_of_a_cascade_are_pooled_once():
    model, passes = build_detector('cascade'), []

    predict(model, random_image(96, 128), report=lambda part, *_: passes.append(part))

    assert passes.count('regions') == 3 + 1  # boxes of three stages, then all masks


def test_a_detector_without_priors_is_refused():
    model = build_detector('retinanet')
    del model.bbox_head.prior_generator

    with pytest.raises(CannotCutError, match='has no prior_generator'):
        predict(model, random_image(64, 64))


def test_another_pooling_of_regions_is_refused():
    model = build_detector('mask_rcnn')
    model.roi_head.bbox_roi_extractor.roi_layers[0].pool_mode = 'max'

    with pytest.raises(CannotCutError, match='pooled by RoIAlign'):
        predict(model, random_image(64, 64))


class Extractor(nn.Module):
    """Regions on the first of two levels, as RoI extractors of mmdet offer it."""

    featmap_strides = (4, 32)
    num_inputs = 2
    out_channels = 3

    def __init__(self, sampling_ratio: int, aligned: bool) -> None:
        super().__init__()
        self.roi_layers = [RoIAlign((7, 5), 1 / 4, sampling_ratio, aligned=aligned)]

    def map_roi_levels(self, rois, num_levels):
        return torch.zeros(len(rois), dtype=torch.long)


@pytest.mark.parametrize(('sampling_ratio', 'aligned'), [(0, True), (2, True), (0, False)])
def test_regions_larger_than_a_tile_are_pooled_in_pieces(sampling_ratio, aligned):
    torch.manual_seed(0)
    shape = (256, 192)
    pyramid = torch.randn(1, 3, 64, 48, dtype=torch.float64)
    boxes = [[3, 2, 5, 250], [-9, -9, 300, 300], [60, 60, 70, 68], [31, 0, 33, 256], [5, 5, 5, 5]]
    rois = torch.tensor([[0.0, *box] for box in boxes], dtype=torch.float64)
    extractor = Extractor(sampling_ratio, aligned)
    tiles = [tile for row in split_image(shape, (64, 64), 32) for tile in row]

    def source(is_needed):
        for tile in filter(is_needed, tiles):
            yield tile, [pyramid[:, :, tile.rows.computed(4), tile.columns.computed(4)]]

    pooled = pool_from_tiles(extractor, rois, 1, source, shape)

    torch.testing.assert_close(pooled, extractor.roi_layers[0](pyramid, rois))


@pytest.mark.parametrize('pixels', [1 << 22, 40])
def test_run_lengths_are_those_of_the_whole_mask(pixels, monkeypatch):
    # A full column goes on at the top of the next one; a box may reach over all edges.
    monkeypatch.setattr('mminline.large.masks.PIECE_PIXELS', pixels)
    pattern = np.random.default_rng(0).random((20, 30)) < 0.6
    pattern[:, 7:9] = True

    def paste(mask_preds, bboxes, labels, img_meta):
        left, top = (-bboxes[0, :2]).int().tolist()
        height, width = img_meta['ori_shape']
        return torch.tensor(pattern[None, top : top + height, left : left + width])

    (found,) = paste_as_runs(
        lambda bboxes, **others: paste(bboxes=bboxes, **others),
        torch.zeros(1),
        torch.tensor([[0.0, 0.0, 30.0, 20.0]]),
        labels=torch.zeros(1),
        img_meta=dict(ori_shape=(20, 30)),
    )

    np.testing.assert_array_equal(mask.decode(found), pattern)
    assert found['counts'] == mask.encode(np.asfortranarray(pattern, np.uint8))['counts'].decode()
