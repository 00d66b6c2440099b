"""Mixed precision in training on a CPU."""

import copy
import functools

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.structures import InstanceData
from torch import Tensor, nn

from helpers.tiny_configs import DETECTOR
from mminline.apis import init_model
from mminline.engine import BFloat16OptimWrapper

SETTINGS = dict(type='mminline.BFloat16OptimWrapper', optimizer=dict(type='SGD', lr=0.01))


@functools.cache
def read() -> Config:
    return Config.fromstring(DETECTOR, '.py')


def build() -> nn.Module:
    torch.manual_seed(0)
    model = init_model(read(), device='cpu', fast=False)
    return model.train()


def batch() -> dict:
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    image = torch.randint(256, (3, 64, 64), generator=torch.Generator().manual_seed(0))
    sample = DetDataSample(metainfo=dict(img_shape=(64, 64), ori_shape=(64, 64), scale_factor=1))
    mask = torch.zeros(1, 64, 64, dtype=torch.uint8)
    mask[:, 10:50, 20:60] = 1
    sample.gt_instances = InstanceData(
        bboxes=torch.tensor([[20.0, 10.0, 60.0, 50.0]]),
        labels=torch.tensor([1]),
        masks=BitmapMasks(mask.numpy(), 64, 64),
    )
    return dict(inputs=[image.to(torch.uint8)], data_samples=[sample])


def losses(model: nn.Module, wrapper, steps: int) -> list[float]:
    torch.manual_seed(0)  # regions are drawn at random
    return [model.train_step(batch(), wrapper)['loss'].item() for _ in range(steps)]


def test_a_detector_learns_in_mixed_precision_as_in_float32():
    curves = []
    for kind in ('OptimWrapper', 'mminline.BFloat16OptimWrapper'):
        model = build()
        wrapper = build_optim_wrapper(model, copy.deepcopy(dict(SETTINGS, type=kind)))
        curves.append(losses(model, wrapper, steps=6))

    full, half = curves
    assert full != half
    assert half[-1] < half[0]
    for ours, theirs in zip(half, full, strict=True):
        assert ours == pytest.approx(theirs, rel=0.05)


def test_parameters_and_gradients_stay_in_float32_and_reach_every_part():
    model = build()
    wrapper = build_optim_wrapper(model, copy.deepcopy(SETTINGS))
    types: list[torch.dtype] = []
    model.neck.fpn_convs[0].conv.register_forward_hook(
        lambda module, args, output: types.append(output.dtype)
    )
    with wrapper.optim_context(model):
        data = model.data_preprocessor(batch(), True)
        found = model(**data, mode='loss')
    loss, _ = model.parse_losses(found)
    loss.backward()

    assert isinstance(wrapper, BFloat16OptimWrapper)
    assert types == [torch.bfloat16]
    gradients: dict[str, Tensor | None] = {
        name: parameter.grad for name, parameter in model.named_parameters()
    }
    assert all(value is not None and value.dtype == torch.float32 for value in gradients.values())
    for part in ('backbone', 'neck', 'rpn_head', 'roi_head.bbox_head', 'roi_head.mask_head'):
        assert any(value.any() for name, value in gradients.items() if name.startswith(part))
