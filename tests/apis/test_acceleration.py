"""``accelerate``: faster necks and heads, the same results, other models untouched."""

import copy
import functools
import pickle

import numpy as np
import pytest
import torch
from mmcv.ops import ModulatedDeformConv2d
from mmengine.config import Config
from torch import nn

from helpers.tiny_configs import DETECTOR
from mminline.apis import Predictor, accelerate, acceleration, init_model, set_precision


@functools.cache
def read() -> Config:
    """Detector with channels enough for the fast form."""
    text = DETECTOR.replace('=8,', '=64,').replace('=8)', '=64)')
    return Config.fromstring(text, '.py')


def build(**options) -> nn.Module:
    torch.manual_seed(0)
    return init_model(read(), device='cpu', **options)


def overridden(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if 'forward' in vars(module)}


def test_the_convolutions_of_neck_and_heads_get_a_faster_form():
    found = overridden(build())

    assert found >= {f'neck.fpn_convs.{level}.conv' for level in range(4)}
    assert found >= {'rpn_head.rpn_conv', 'roi_head.mask_head.convs.0.conv'}
    assert not any(name.startswith('backbone') for name in found)


def test_maps_and_scores_stay_the_same_up_to_rounding():
    fast, plain = build(), build(fast=False)
    image = torch.randn(1, 3, 192, 256)

    with torch.no_grad():
        found, expected = (
            [*model.neck(model.backbone(image)), *model.rpn_head(model.extract_feat(image))[0]]
            for model in (fast, plain)
        )

    assert any(not torch.equal(*pair) for pair in zip(found, expected, strict=True))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


def test_weights_and_gradients_stay_the_same():
    # In float64: kernels for other orders in memory round differently.
    fast, plain = build().double(), build(fast=False).double()
    image = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    for model in (fast, plain):
        sum(part.square().sum() for part in model.extract_feat(image)).backward()

    assert fast.state_dict().keys() == plain.state_dict().keys()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_it_can_be_switched_off(monkeypatch):
    assert not overridden(build(fast=False))
    monkeypatch.setenv('MMINLINE_EXECUTION', 'plain')
    assert not overridden(build())


def test_a_model_without_our_backbone_is_left_alone():
    config = copy.deepcopy(read())
    config.model.backbone = dict(type='mmdet.ResNet', depth=18, norm_eval=False)
    config.model.neck.in_channels = [64, 128, 256, 512]

    model = init_model(config, device='cpu')
    before = {name: value.stride() for name, value in model.named_parameters()}
    accelerate(model, 'bfloat16')

    assert not overridden(model)
    assert {name: value.stride() for name, value in model.named_parameters()} == before


@pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')
def test_in_half_precision_convolutions_keep_their_weights_channels_last():
    model = build(precision='bfloat16')

    for name in ('neck.fpn_convs.0.conv', 'roi_head.mask_head.upsample'):
        weight = model.get_submodule(name).weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert not weight.is_contiguous()


@pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')
def test_another_precision_brings_its_own_form():
    model, expected = build(precision='bfloat16'), build()
    image = torch.randn(1, 3, 192, 256)
    name = 'neck.fpn_convs.0.conv'
    conv = model.get_submodule(name)
    set_precision(model, 'float32')

    assert name in overridden(model)
    with torch.no_grad():
        for ours, theirs in zip(
            model.extract_feat(image), expected.extract_feat(image), strict=True
        ):
            assert torch.equal(ours, theirs)
    set_precision(model, 'bfloat16')
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)


def test_another_precision_does_not_accelerate():
    model = build(fast=False)
    set_precision(model, 'float32')

    assert not overridden(model)


def test_maps_of_the_backbone_are_not_copied_where_all_that_follows_can_read_them():
    image = torch.randn(1, 3, 192, 256)

    def orders(model: nn.Module) -> set[bool]:
        with torch.no_grad():
            maps = model.backbone(image)
        return {each.is_contiguous(memory_format=torch.channels_last) for each in maps}

    class Neck(nn.Identity):
        """Part of another library, which may read memory as it likes."""

    strange = build(fast=False)
    strange.neck.add_module('extra', Neck())
    accelerate(strange)
    with_op = build(fast=False)
    with_op.neck.add_module('extra', ModulatedDeformConv2d(8, 8, 3))
    accelerate(with_op)

    assert orders(build()) == {True}
    assert orders(build(fast=False)) == orders(strange) == orders(with_op) == {False}


def test_a_part_that_cannot_read_the_order_takes_it_back():
    model = build()
    assert model.backbone.channels_last

    model.neck.add_module('extra', ModulatedDeformConv2d(8, 8, 3))
    accelerate(model)

    assert not model.backbone.channels_last
    assert model.neck.fpn_convs[0].conv.weight.is_contiguous()


def test_a_head_that_calls_view_on_a_map_gets_contiguous_ones():
    from mmseg.models.decode_heads import DMHead

    head = DMHead(in_channels=64, in_index=3, channels=8, num_classes=3, filter_sizes=(1, 3))
    assert not acceleration._reads_strides(head)
    model = build(fast=False)
    model.extra_head = head
    accelerate(model)

    assert not model.backbone.channels_last


def test_a_saved_model_runs_its_own_parts(tmp_path):
    model, image = build(), torch.randn(1, 3, 192, 256)
    torch.save(model, tmp_path / 'model.pth')
    again = torch.load(tmp_path / 'model.pth', weights_only=False)

    with torch.no_grad():
        torch.testing.assert_close(again.extract_feat(image), model.extract_feat(image))


def test_predictions_stay_the_same_up_to_rounding():
    fast, plain = build(), build(fast=False)
    generator = np.random.default_rng(0)
    image_HWC = generator.integers(0, 256, (192, 256, 3), np.uint8)

    found, expected = (Predictor(model, 0.0).predict(image_HWC) for model in (fast, plain))

    found, expected = found.pred_instances, expected.pred_instances
    assert len(found) == len(expected) > 0
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.bboxes, expected.bboxes, atol=1e-2, rtol=1e-4)


def test_a_pickled_model_runs_its_own_parts():
    model, image = build(), torch.randn(1, 3, 192, 256)
    again = pickle.loads(pickle.dumps(model))

    assert overridden(again) == overridden(model)
    for module in again.modules():
        if 'forward' in vars(module):
            assert module.forward.args == (module,)
    with torch.no_grad():
        torch.testing.assert_close(again.extract_feat(image), model.extract_feat(image))
