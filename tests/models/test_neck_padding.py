"""Neck and heads with ``ignore_padding``: an image in a padded batch is an image alone."""

import copy
import functools
import importlib
import pickle

import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import nn
from torch.testing import assert_close

from helpers.shipped_configs import load
from helpers.tiny import SIZES, gradients, randomize, weighted_sum
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import init_model
from mminline.models import ignore_padding

pytestmark = pytest.mark.slow

BATCHES = {
    'odd': [(33, 47), (75, 61)],
    'smallest': [(32, 32), (70, 41)],
    'much smaller': [(32, 35), (160, 193)],
    'wider and higher': [(64, 90), (90, 64)],
    'three': [(50, 64), (100, 37), (50, 64)],
    'padded alike': [(50, 70), (50, 70)],
    'alone': [(45, 77)],
}


@functools.cache
def read(kind: str) -> Config:
    if kind != 'retinanet':
        return Config.fromstring(dict(detector=DETECTOR, segmentor=SEGMENTOR)[kind], '.py')
    config = load('retinanet_inline-pvt-nano_fpn_shapes')
    config.model.backbone.arch = SIZES
    config.model.neck.update(in_channels=list(SIZES['embed_dims']), out_channels=8)
    config.model.bbox_head.update(in_channels=8, feat_channels=8, stacked_convs=2)
    return config


def build(kind: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return randomize(init_model(read(kind), device='cpu', **options)).double().train()


def draw(sizes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, *size, dtype=dtype, generator=generator) for size in sizes]


def pad(images, divisor=32):
    sides = [max(image.shape[axis] for image in images) for axis in (1, 2)]
    height, width = (-(-side // divisor) * divisor for side in sides)
    batch = images[0].new_zeros(len(images), 3, height, width)
    for index, pixels in enumerate(images):
        batch[index, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return batch


def run(model, batch):
    """All maps behind the backbone."""
    maps = list(model.neck(model.backbone(batch)))
    for name in ('rpn_head', 'bbox_head'):
        if hasattr(model, name):
            scores, boxes = getattr(model, name)(maps)
            return [*maps, *scores, *boxes]
    return maps


def crop(maps, index, like):
    """The maps of one image of a batch, as large as those of the image alone."""
    return [
        part[index : index + 1, :, : alone.shape[2], : alone.shape[3]]
        for part, alone in zip(maps, like, strict=True)
    ]


@pytest.mark.parametrize('sizes', BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize('kind', ['detector', 'retinanet', 'segmentor'])
def test_maps_and_scores_are_those_of_the_image_alone(kind, sizes):
    model, images = build(kind), draw(sizes)
    alone = [run(model, pixels[None]) for pixels in images]
    differing = run(model, pad(images))
    ignore_padding(model)
    maps = run(model, pad(images))

    for index, expected in enumerate(alone):
        assert_close(crop(maps, index, expected), expected, rtol=1e-9, atol=1e-9)
        assert_close(run(model, images[index][None]), expected, rtol=0, atol=0)
    worst = [
        max((a - b).abs().max() for a, b in zip(crop(differing, i, each), each, strict=True))
        for i, each in enumerate(alone)
    ]
    assert max(worst) > 1e-3


@pytest.mark.parametrize('kind', ['detector', 'retinanet'])
def test_gradients_of_an_image_do_not_depend_on_its_neighbours(kind):
    model, images = build(kind), draw(BATCHES['odd'])
    ignore_padding(model)
    pixels = images[0][None].clone().requires_grad_()
    alone = run(model, pixels)
    weighted_sum(alone).backward()
    expected = gradients(model)
    model.zero_grad()
    batch = pad(images).requires_grad_()
    weighted_sum(crop(run(model, batch), 0, alone)).backward()

    assert_close(batch.grad[:1, :, :33, :47], pixels.grad, rtol=1e-9, atol=1e-9)
    assert batch.grad.count_nonzero() == pixels.grad.count_nonzero()
    for name, gradient in gradients(model).items():
        assert (gradient is None) == (expected[name] is None), name
        if gradient is not None:
            assert_close(gradient, expected[name], rtol=1e-9, atol=1e-8, msg=name)


def propose(model, batch, sizes):
    """Proposals of an RPN, or predictions of a detector of one stage."""
    head = model.rpn_head if hasattr(model, 'rpn_head') else model.bbox_head
    outputs = head(model.neck(model.backbone(batch)))
    outputs = [[each.float() for each in kind] for kind in outputs]  # mmcv suppresses in float32
    metas = [dict(img_shape=size, scale_factor=(1.0, 1.0)) for size in sizes]
    return head.predict_by_feat(*outputs, batch_img_metas=metas, rescale=False)


@pytest.mark.parametrize('sizes', BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize('kind', ['detector', 'retinanet'])
@torch.no_grad()
def test_proposals_are_those_of_the_image_alone(kind, sizes):
    model, images = build(kind).eval(), draw(sizes)
    if kind == 'detector':  # all that there are, so that one more would be noticed
        model.rpn_head.test_cfg.update(nms_pre=10000, max_per_img=10000)
    ignore_padding(model)
    together = propose(model, pad(images), sizes)

    for pixels, size, found in zip(images, sizes, together, strict=True):
        (expected,) = propose(model, pixels[None], [size])
        assert len(expected) > 5
        assert_close(found.bboxes, expected.bboxes, rtol=1e-5, atol=1e-4)
        assert_close(found.scores, expected.scores, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_without_it_anchors_in_the_padding_propose():
    model, images = build('detector').eval(), draw(BATCHES['much smaller'])
    model.rpn_head.test_cfg.update(nms_pre=10000, max_per_img=10000)
    (alone,) = propose(model, images[0][None], BATCHES['much smaller'][:1])

    assert len(propose(model, pad(images), BATCHES['much smaller'])[0]) > len(alone)


def test_anchors_in_the_padding_stay_examples_in_training():
    model, images = build('retinanet'), draw(BATCHES['odd'])
    ignore_padding(model)

    assert all(each.isfinite().all() for each in run(model, pad(images)))
    assert not all(each.isfinite().all() for each in run(model.eval(), pad(images)))


def test_a_batch_without_padding_costs_no_pass_over_maps(monkeypatch):
    model, images = build('detector'), draw([(64, 96)] * 2)
    ignore_padding(model)
    monkeypatch.setattr(torch, 'where', None)
    run(model, torch.stack(images))

    with pytest.raises(TypeError, match='NoneType'):
        run(model, pad(draw(BATCHES['odd'])))


@pytest.mark.parametrize(
    'copy_of', [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_copies_keep_books_of_their_own(copy_of):
    model, images = build('detector').eval(), draw(BATCHES['odd'])
    del model.cfg
    ignore_padding(model)
    run(model, pad(images))
    twin = copy_of(model)
    expected = run(model, pad(images))

    maps = twin.neck(twin.backbone(images[0][None]))  # has no padding
    assert_close(run(model, pad(images)), expected, rtol=0, atol=0)
    features = model.neck(model.backbone(pad(images)))
    twin.rpn_head(maps)
    assert_close(list(model.rpn_head(features)[0]), expected[5:10], rtol=0, atol=0)
    assert_close(run(twin, pad(images)), expected, rtol=0, atol=0)


def test_twice_is_once():
    model = build('detector')
    for _ in range(2):
        ignore_padding(nn.ModuleDict(dict(detector=model)))  # whatever holds it

    convolution = model.rpn_head.rpn_conv
    assert len(convolution._forward_pre_hooks) == len(model.rpn_head._forward_hooks) == 1
    assert not model.rpn_head.rpn_cls._forward_pre_hooks  # looks at single cells
    assert not any(each._forward_pre_hooks for each in model.roi_head.modules())
    assert not any(each._forward_pre_hooks for each in model.backbone.modules())


def test_models_that_it_would_not_change_are_refused():
    model = build('detector')
    model.backbone.ignore_padding = False
    with pytest.raises(ValueError, match='needs a backbone with ignore_padding=True.*MaskRCNN'):
        ignore_padding(model)
    segmentor = build('segmentor')
    del segmentor.neck
    with pytest.raises(ValueError, match='behind it a neck, rpn_head or bbox_head'):
        ignore_padding(segmentor)


def test_graphs_and_counters_see_no_padding():
    from torch._subclasses import FakeTensorMode

    model, batch = build('detector').float().eval(), pad(draw(BATCHES['odd'], torch.float32))
    model.backbone.ignore_padding = True
    features = model.backbone(batch)
    expected = model.neck(features)
    ignore_padding(model)
    model.neck(features)  # leaves sizes behind

    traced = torch.jit.trace(model.neck, (features,), check_trace=False)
    assert_close(traced(features), expected)
    torch._dynamo.reset()
    compiled = torch.compile(model.neck, fullgraph=True, backend='eager')
    assert_close(compiled(features), expected)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert run(model, mode.from_tensor(batch))[0].shape == expected[0].shape


def test_fast_convolutions_see_zeros_too():
    images = draw(BATCHES['odd'], torch.float32)
    results = []
    for fast in (True, False):
        model = build('detector', fast=fast).float().eval()
        ignore_padding(model)
        with torch.no_grad():
            results.append(run(model, pad(images)))
    assert_close(*results, rtol=1e-4, atol=1e-4)


def test_autocast_keeps_its_precision():
    model, images = build('detector').float(), draw(BATCHES['odd'], torch.float32)
    with torch.autocast('cpu', torch.bfloat16):
        before = [each.dtype for each in run(model, pad(images))]
        ignore_padding(model)
        assert [each.dtype for each in run(model, pad(images))] == before


@pytest.mark.parametrize('sizes', BATCHES.values(), ids=BATCHES)
@torch.no_grad()
def test_regions_are_those_of_the_image_alone(sizes):
    model, images = build('detector').float().eval(), draw(sizes, torch.float32)
    ignore_padding(model)
    features = model.neck(model.backbone(pad(images)))
    plain = build('detector').float().eval()
    differing = plain.neck(plain.backbone(pad(images)))
    worst = 0
    for index, (pixels, (height, width)) in enumerate(zip(images, sizes, strict=True)):
        # The whole image, its right half, its bottom half, and its last corner.
        half = [(0, 0), (0, width / 2), (height / 2, 0), (height - 3, width - 3)]
        corners = torch.tensor([[0, left, top, width, height] for top, left in half])
        alone = model.neck(model.backbone(pixels[None]))
        expected = model.roi_head.mask_roi_extractor(alone[:4], corners)
        corners[:, 0] = index
        found = model.roi_head.mask_roi_extractor(features[:4], corners)
        assert_close(found, expected, rtol=1e-5, atol=1e-5)
        other = model.roi_head.mask_roi_extractor(differing[:4], corners)
        worst = max(worst, (other - expected).abs().max())
    assert worst > 1e-3


@pytest.mark.parametrize('kind', ['detector', 'retinanet'])
@torch.no_grad()
def test_detections_are_those_of_the_image_alone(kind, monkeypatch):
    from mmdet.structures import DetDataSample

    # In float64, because rounding of float32 decides a few pixels of the masks. Two steps know
    # float32 only: NMS, which says which boxes to keep, and the grid on which masks are pasted.
    mmcv_ops = importlib.import_module('mmcv.ops.nms').ext_module
    nms, sample = mmcv_ops.nms, F.grid_sample
    monkeypatch.setattr(
        mmcv_ops, 'nms', lambda boxes, scores, **rest: nms(boxes.float(), scores.float(), **rest)
    )
    monkeypatch.setattr(F, 'grid_sample', lambda x, grid, **rest: sample(x.double(), grid, **rest))
    sizes = BATCHES['much smaller']
    images, model = draw(sizes), build(kind).eval()
    for cfg in (model.test_cfg, model.test_cfg.get('rcnn', {})):
        cfg.update(score_thr=0.0)

    def detect(batch, sizes):
        meta = dict(scale_factor=(1.0, 1.0), batch_input_shape=tuple(batch.shape[2:]))
        metas = [dict(meta, img_shape=size, ori_shape=size) for size in sizes]
        found = model.predict(batch, [DetDataSample(metainfo=each) for each in metas])
        return [each.pred_instances for each in found]

    def same(found, expected):
        if len(found) != len(expected):
            return False
        names = [name for name in ('bboxes', 'scores', 'labels', 'masks') if name in expected]
        return all(
            torch.allclose(found[name].double(), expected[name].double(), rtol=1e-9, atol=1e-9)
            for name in names
        )

    alone = [detect(pixels[None], [size])[0] for pixels, size in zip(images, sizes, strict=True)]
    assert not all(map(same, detect(pad(images), sizes), alone))
    ignore_padding(model)
    assert all(map(same, detect(pad(images), sizes), alone))
    assert all(len(each) > 3 for each in alone)
