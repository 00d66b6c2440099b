"""``export_model`` of whole detectors: files that find what mmdet finds, and what is refused."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from helpers import tiny_detectors
from mminline.apis import init_model
from mminline.apis.export import ExportedFile, ExportError, evaluate, export_model, exporter
from mminline.apis.export.checking import check_detector_file
from mminline.apis.export.detector import DetectorModel
from mminline.apis.export.detector_checking import SIZES, mosaic
from mminline.apis.export.files import open_graph
from mminline.apis.export.matching import match
from mminline.apis.export.reference import DetectorReference, DistinctSigmoid
from mminline.apis.export.support import check_detector, reasons_against
from mminline.models import ignore_padding

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def exported(shapes, tmp_path_factory) -> ExportedFile:
    """A Mask R-CNN with open height and width."""
    model = tiny_detectors.build(tiny_detectors.mask_rcnn(), shapes)
    return export_model(model, tmp_path_factory.mktemp('files') / 'mask-rcnn.onnx', shape=(64, 96))


def test_a_file_finds_what_mmdet_finds_at_any_size(exported):
    sizes = [(64, 96), *SIZES, (5, 157)]  # these two stages need 8 rows
    assert set(exported.differences) == {(1, *size) for size in sizes}
    assert max(exported.differences.values()) == 0

    session = onnxruntime.InferenceSession(exported.path)
    for size in ((47, 250), (33, 32), (1, 70), (150, 6)):
        dets, labels, masks = session.run(None, {'image': mosaic(size).numpy()})
        wanted = exported.reference(mosaic(size))
        assert len(labels) > 0
        np.testing.assert_array_equal(labels, wanted.labels)
        np.testing.assert_allclose(dets, wanted.dets, atol=1e-3)
        assert masks.shape == (len(labels), 28, 28)
        assert ((masks >= 0) & (masks <= 1)).all()


def test_a_file_ignores_padding_where_neck_and_heads_do(shapes, tmp_path):
    model = tiny_detectors.build(tiny_detectors.mask_rcnn(), shapes)
    ignore_padding(model)
    exported = export_model(model, tmp_path / 'mask-rcnn.onnx', shape=(64, 96), paste=True)

    assert any(size[1] % 32 for size in exported.differences)
    assert max(exported.differences.values()) == 0
    masks = exported.run(mosaic((47, 70)))[2]  # pasted at a size that is open
    assert masks.dtype == bool
    assert masks.shape[1:] == (47, 70)


def test_a_file_is_plain_onnx_that_knows_how_to_be_used(exported):
    file = onnx.load(exported.path)
    onnx.checker.check_model(file, full_check=True)

    assert {node.domain for node in file.graph.node} == {''}
    shapes = {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in (*file.graph.input, *file.graph.output)
    }
    assert shapes == dict(
        image=[1, 3, 'height', 'width'],
        score_threshold=[1],
        dets=['detections', 5],
        labels=['detections'],
        masks=['detections', 28, 28],
    )
    meta = {entry.key: json.loads(entry.value) for entry in file.metadata_props}
    assert meta['mminline.what'] == 'detector'
    assert meta['mminline.classes'] == ['circle', 'square', 'triangle', 'star', 'ring', 'cross']
    assert meta['mminline.palette'][0] == [230, 159, 0]
    assert meta['mminline.resize'] == dict(scale=[128, 128], keep_ratio=True)
    assert meta['mminline.thresholds'] == dict(score=0.05, iou=0.5, most=10, mask=0.5)


def test_an_image_without_objects_gives_none(exported):
    session = onnxruntime.InferenceSession(exported.path)
    image = mosaic((64, 64)).numpy()

    for inputs in (
        dict(image=np.full_like(image, np.nan)),
        dict(image=image, score_threshold=np.ones(1, np.float32)),
    ):
        dets, labels, masks = session.run(None, inputs)
        assert (dets.shape, labels.shape, masks.shape) == ((0, 5), (0,), (0, 28, 28))


def test_a_blank_image_gives_what_mmdet_gives(exported):
    blank = torch.zeros(1, 3, 50, 70)
    wanted = exported.reference(blank)
    dets, labels, _ = exported.run(blank)

    np.testing.assert_array_equal(labels, wanted.labels)
    np.testing.assert_allclose(dets, wanted.dets, atol=1e-3)
    assert len(exported.run(blank, float(dets[:, 4].max()))[0]) == 0


@pytest.mark.parametrize('name', ['faster_rcnn', 'retinanet_deit'])
def test_detectors_of_boxes_and_plain_transformers_can_be_exported(name, shapes, tmp_path):
    model = tiny_detectors.build(getattr(tiny_detectors, name)(), shapes)

    exported = export_model(model, tmp_path / 'a.onnx', shape=(70, 100), dynamic=False)

    assert exported.differences == {(1, 70, 100): 0}
    assert len(exported.run(mosaic((70, 100)))) == 2


def test_a_file_is_timed_against_the_faster_form_of_mmdet(monkeypatch):
    timed = []
    monkeypatch.setattr(exporter, 'time_in_turn', lambda reference, *rest: timed.append(reference))
    model = init_model(tiny_detectors.mask_rcnn(), device='cpu', fast=False)
    file = ExportedFile(Path('a.onnx'), model, None, DetectorReference(model), None, {})
    file.time((64, 96), rounds=1)

    def replaced(model):
        return [name for name, part in model.named_modules() if 'forward' in vars(part)]

    assert replaced(timed[0].model) and not replaced(model)


def test_regions_cut_half_a_pixel_away_fail_the_comparison(exported, tmp_path):
    file = onnx.load(exported.path)
    for node in file.graph.node:
        for attribute in node.attribute:
            if attribute.name == 'coordinate_transformation_mode' and node.op_type == 'RoiAlign':
                assert attribute.s == b'half_pixel'
                attribute.s = b'output_half_pixel'
    onnx.save(file, tmp_path / 'wrong.onnx')
    run = open_graph(tmp_path / 'wrong.onnx', 'onnx')

    with pytest.raises(ExportError, match='detections have no partner'):
        check_detector_file(
            exported.path, exported.module, run, exported.reference, [(64, 96)], verbose=False
        )


def test_scores_of_a_file_are_those_of_the_model(exported):
    of_file, of_model = evaluate(exported, exported.model.cfg)

    assert of_file == pytest.approx(of_model, abs=1e-3)
    assert {'coco/bbox_mAP', 'coco/segm_mAP'} <= set(of_file)


def test_a_cascade_can_paste_its_masks(shapes, tmp_path):
    model = tiny_detectors.build(tiny_detectors.cascade(), shapes)
    path = tmp_path / 'cascade.onnx'

    exported = export_model(model, path, shape=(70, 50), dynamic=False, paste=True)

    assert exported.differences == {(1, 70, 50): 0}
    masks = exported.run(mosaic((70, 50)))[2]
    assert masks.dtype == bool
    assert masks.shape[1:] == (70, 50)


def test_thresholds_of_a_one_stage_detector_can_be_changed(shapes, tmp_path):
    model = tiny_detectors.build(tiny_detectors.retinanet(), shapes)
    with torch.no_grad():
        model.bbox_head.retina_cls.weight.mul_(0.05)  # scores that differ by more than rounding
    before = DetectorReference(model)(mosaic((64, 96)))
    scores = before.dets[:, 4]
    gap = np.argmax(scores[:-1] - scores[1:])
    score_thr = float(scores[gap : gap + 2].mean())

    exported = export_model(
        model, tmp_path / 'a.onnx', shape=(64, 96), dynamic=False, score_thr=score_thr, nms_thr=0.2
    )

    assert exported.differences == {(1, 64, 96): 0}
    dets, labels = exported.run(mosaic((64, 96)))
    assert dets[:, 4].min() > score_thr
    assert len(before.labels) > len(labels) > 0
    assert model.test_cfg.nms.iou_threshold == 0.5


def test_boxes_whose_scores_are_all_1_are_still_ranked(shapes):
    model = tiny_detectors.build(tiny_detectors.retinanet(), shapes)
    image = mosaic((128, 128))
    with torch.no_grad():
        dets, labels = (part.numpy() for part in DetectorModel(model)(image))

    reference = DetectorReference(model)
    with reference.exact_ranks():
        wanted = reference(image)

    assert (wanted.dets[:, 4] == 1).all()
    np.testing.assert_array_equal(labels, wanted.labels)
    np.testing.assert_allclose(dets, wanted.dets, atol=1e-2)
    # mmdet alone chooses among equal scores, and chooses others.
    assert match(reference(image), wanted).unmatched > 0


def test_sigmoids_of_the_reference_are_never_equal():
    values = torch.tensor([-200.0, -100.0, -1.0, 0.0, 16.0, 20.0, 40.0, 40.0001, 100.0])

    with DistinctSigmoid():
        scores = values.sigmoid()

    assert (scores.diff() > 0).all()
    assert scores[0] > 0  # above a threshold of 0
    torch.testing.assert_close(scores.float(), values.sigmoid())


def test_backbones_that_compute_padding_get_it(shapes):
    config = tiny_detectors.retinanet()
    config.model.backbone.ignore_padding = False
    model = tiny_detectors.build(config, shapes)
    image = mosaic((50, 70))

    with torch.no_grad():
        dets, _ = DetectorModel(model)(image)
    reference = DetectorReference(model)
    with reference.exact_ranks():
        expected = reference(image).dets
    np.testing.assert_allclose(dets, expected, atol=1e-3)


@pytest.mark.parametrize(
    ('name', 'change', 'reason'),
    [
        ('mask_rcnn', {'test_cfg.rcnn.nms.type': 'soft_nms'}, 'suppressed by soft_nms'),
        ('mask_rcnn', {'test_cfg.rpn.nms.max_num': 5}, 'nms has the options max_num'),
        (
            'mask_rcnn',
            {'roi_head.bbox_roi_extractor.type': 'GenericRoIExtractor'},
            'roi_extractor is a GenericRoIExtractor',
        ),
        ('retinanet', {'bbox_head.type': 'FSAFHead'}, 'bbox_head is a FSAFHead, not a RetinaHead'),
    ],
)
def test_a_detector_that_is_not_known_is_refused_with_the_reason(name, change, reason, shapes):
    config = getattr(tiny_detectors, name)()
    config.merge_from_dict({f'model.{key}': value for key, value in change.items()})
    model = tiny_detectors.build(config, shapes)

    with pytest.raises(ValueError, match=f'cannot be exported as a whole: .*{reason}'):
        check_detector(model)


def test_a_detector_of_queries_is_refused():
    class DINOHead(nn.Module):
        pass

    model = nn.Module()
    model.with_neck = True
    model.data_preprocessor = nn.Module()
    model.data_preprocessor.pad_size_divisor = 1
    model.bbox_head = DINOHead()

    assert next(reasons_against(model)) == 'its bbox_head is a DINOHead, not a RetinaHead'


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(format='pt2'), 'has to be exported as onnx, got pt2'),
        (dict(score_thr=1.5), 'score_thr has to be from 0 to 1, got score_thr=1.5'),
        (dict(paste=True), 'pasting needs masks, and this detector predicts none'),
        (dict(what='features', nms_thr=0.5), 'nms_thr is for detectors, got what=features'),
        (dict(what='segmentor'), 'what=segmentor needs a segmentor, got RetinaNet: use detector'),
    ],
)
def test_what_cannot_work_is_named(shapes, tmp_path, options, message):
    model = tiny_detectors.build(tiny_detectors.retinanet(), shapes)

    with pytest.raises(ValueError, match=message):
        export_model(model, tmp_path / 'a.onnx', **options)
    assert not list(Path(tmp_path).iterdir())


def test_sets_match_in_any_order_and_differ_in_class_box_score_and_mask(exported):
    wanted = exported.reference(mosaic((64, 96)))
    count = len(wanted.labels)
    backwards = type(wanted)(*(part[::-1] for part in wanted))

    assert match(backwards, wanted)[:2] == (count, 0)
    for part, change in (
        ('labels', lambda labels: labels + 1),
        ('dets', lambda dets: dets + np.array([0.2, 0, 0, 0, 0], np.float32)),
        ('dets', lambda dets: dets + np.array([0, 0, 0, 0, 0.01], np.float32)),
        ('dets', lambda dets: dets * np.nan),
        ('masks', lambda masks: ~masks),
    ):
        other = wanted._replace(**{part: change(getattr(wanted, part))})
        assert match(other, wanted)[:2] == (count, count)
    assert match(wanted._replace(dets=wanted.dets[:3], labels=wanted.labels[:3]), wanted)[1] > 0
