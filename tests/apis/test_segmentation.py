"""Class maps without full-size scores are those of mmseg; other models run as they are."""

import copy
import functools
from types import MethodType

import numpy as np
import pytest
import torch
from mmengine.config import Config
from torch import nn

from helpers.tiny import randomize
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import Predictor, init_model, segmentation

SEGMENTOR_WITH_RESIZE = SEGMENTOR.replace(
    'pipeline=[dict(type=step) for step in steps]',
    "pipeline=[dict(type='LoadImageFromFile'), dict(type='Resize', scale=(200, 90)), "
    "dict(type='PackSegInputs')]",
)


@functools.cache
def build(text: str = SEGMENTOR) -> nn.Module:
    return randomize(init_model(Config.fromstring(text, '.py'), device='cpu'))


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (131, 203, 3), np.uint8)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(segmentation, 'SMALL_BYTES', 0)


def predict_both(model: nn.Module, image: np.ndarray) -> tuple:
    """Predict row by row, and as mmseg does."""
    by_row = Predictor(model).predict(image)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('mminline.apis.predictor.predict_class_map', lambda *_: None)
        return by_row, Predictor(model).predict(image)


def pad_to_multiples(model: nn.Module) -> None:
    model.data_preprocessor.test_cfg = dict(size_divisor=64)


def align_corners(model: nn.Module) -> None:
    model.align_corners = model.decode_head.align_corners = True


@pytest.mark.parametrize('change', [lambda model: None, pad_to_multiples, align_corners])
@pytest.mark.parametrize('text', [SEGMENTOR, SEGMENTOR_WITH_RESIZE], ids=['whole', 'resized'])
def test_the_class_map_is_that_of_mmseg(text, change, image):
    model = copy.deepcopy(build(text))
    change(model)

    by_row, expected = predict_both(model, image)

    assert 'seg_logits' not in by_row
    assert 'seg_logits' in expected
    assert by_row.pred_sem_seg.data.shape == (1, 131, 203)
    assert len(by_row.pred_sem_seg.data.unique()) > 1
    assert torch.equal(by_row.pred_sem_seg.data, expected.pred_sem_seg.data)
    assert by_row.metainfo == expected.metainfo


def use_windows(model: nn.Module) -> None:
    model.test_cfg = Config(dict(mode='slide', crop_size=(64, 64), stride=(48, 48)))._cfg_dict


def use_a_threshold(model: nn.Module) -> None:
    head = model.decode_head
    head.conv_seg = nn.Conv2d(head.conv_seg.in_channels, 1, 1)
    head.out_channels = model.out_channels = 1
    head.threshold = 0.5


def change_the_head(model: nn.Module) -> None:
    def predict_by_feat(self, scores, metas):
        return type(self).predict_by_feat(self, -scores, metas)

    model.decode_head.predict_by_feat = MethodType(predict_by_feat, model.decode_head)


@pytest.mark.parametrize('change', [use_windows, use_a_threshold, change_the_head])
def test_what_is_not_known_runs_as_it_is(change, image):
    model = copy.deepcopy(build())
    change(model)

    found, expected = predict_both(model, image)

    assert 'seg_logits' in found
    assert torch.equal(found.pred_sem_seg.data, expected.pred_sem_seg.data)


def test_detectors_small_images_and_plain_execution_run_as_they_are(image, monkeypatch):
    assert 'pred_instances' in Predictor(build(DETECTOR)).predict(image)
    monkeypatch.setattr(segmentation, 'SMALL_BYTES', 4 * 7 * 131 * 203)
    assert 'seg_logits' in Predictor(build()).predict(image)
    monkeypatch.setattr(segmentation, 'SMALL_BYTES', 0)
    monkeypatch.setenv('MMINLINE_EXECUTION', 'plain')
    assert 'seg_logits' in Predictor(build()).predict(image)


def test_a_changed_forward_of_the_model_is_used(image):
    # As init_model changes it for half precision.
    model = copy.deepcopy(build())
    modes = []
    forward = model.forward

    def watch(*args, mode, **kwargs):
        modes.append(mode)
        return forward(*args, mode=mode, **kwargs)

    model.forward = watch
    Predictor(model).predict(image)

    assert modes == ['tensor']
