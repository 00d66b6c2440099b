"""Masks of detected objects, of those that ``Predictor`` keeps only."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from mmdet.models import FCNMaskHead
from mmengine.dataset import pseudo_collate
from torch import nn

from helpers.large_models import build_detector, random_image
from mminline.apis import Predictor
from mminline.apis.detection import masks_from

KINDS = ['mask_rcnn', 'cascade']
STEPS = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='PackDetInputs', meta_keys=('ori_shape', 'img_shape', 'scale_factor')),
]


@functools.cache
def build(kind: str) -> nn.Module:
    model = build_detector(kind)
    model.cfg.test_dataloader = dict(dataset=dict(pipeline=STEPS))
    model.dataset_meta = dict(classes=list('abcdef'))
    return model


@pytest.fixture
def image() -> np.ndarray:
    return random_image(70, 90)


@pytest.fixture
def pasted(monkeypatch) -> list[int]:
    """Numbers of masks that are brought to the size of an image, call by call."""
    numbers = []
    paste = FCNMaskHead._predict_by_feat_single

    def count(head, mask_preds, *args, **kwargs):
        numbers.append(len(mask_preds))
        return paste(head, mask_preds, *args, **kwargs)

    monkeypatch.setattr(FCNMaskHead, '_predict_by_feat_single', count)
    return numbers


@torch.no_grad()
def predict_all(model, image):
    (sample,) = model.test_step(pseudo_collate([Predictor(model).pipeline(image)]))
    return sample.pred_instances


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('rank', [0, 3, None])
def test_masks_are_those_of_the_objects_that_are_kept(kind, rank, image, pasted):
    model = build(kind)
    everything = predict_all(model, image)
    scores = everything.scores.sort(descending=True).values
    # The score of an object, which is kept itself; and one that no object has.
    score_thr = 2.0 if rank is None else float(scores[rank])
    pasted.clear()

    found = Predictor(model, score_thr).predict(image).pred_instances

    kept = everything[everything.scores >= score_thr]
    assert len(kept) == (0 if rank is None else rank + 1) < len(everything)
    assert sum(pasted) == len(kept)
    for name in ('bboxes', 'labels', 'scores', 'masks'):
        assert torch.equal(found[name], kept[name]), name
    if rank == 3:
        assert found.masks.any()


def test_other_heads_compute_all_masks(image, pasted, monkeypatch):
    model = build('mask_rcnn')
    # Such a method may change the scores.
    predict_mask = model.roi_head.predict_mask
    monkeypatch.setattr(
        model.roi_head, 'predict_mask', lambda *args, **kw: predict_mask(*args, **kw)
    )

    found = Predictor(model, score_thr=2.0).predict(image).pred_instances

    assert len(found) == 0
    assert sum(pasted) > 0


def test_models_that_go_on_with_the_objects_compute_all_masks(image, pasted, monkeypatch):
    model = build('mask_rcnn')
    predict = model.predict
    monkeypatch.setattr(model, 'predict', lambda *args, **kwargs: predict(*args, **kwargs))

    Predictor(model, score_thr=2.0).predict(image)

    assert sum(pasted) > 0


def test_other_threads_that_call_the_model_meanwhile_get_all_objects(image):
    model = build('mask_rcnn')
    expected = predict_all(model, image)

    with masks_from(model, 2.0), ThreadPoolExecutor(1) as pool:
        found = pool.submit(predict_all, model, image).result()

    assert len(expected) > 0
    assert torch.equal(found.scores, expected.scores)


@pytest.mark.parametrize('kind', KINDS)
def test_the_model_is_as_before_also_after_an_error(kind, image, monkeypatch):
    model = build(kind)
    expected = predict_all(model, image)
    with monkeypatch.context() as patch:
        patch.setattr(FCNMaskHead, 'predict_by_feat', lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Predictor(model, score_thr=0.0).predict(image)

    assert 'predict_bbox' not in vars(model.roi_head)
    assert torch.equal(predict_all(model, image).scores, expected.scores)
