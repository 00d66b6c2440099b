"""RoIAlign as a weighted sum of pixels."""

import pytest
import torch
from mmcv.ops import RoIAlign
from torch import Tensor

from mminline.execution import roi_align
from mminline.execution.roi_align import run_roi_align, suits_table

SHAPE = (2, 12, 50, 60)


def draw_boxes(number: int, largest: float = 200.0) -> Tensor:
    """Boxes on two images of 200 x 240 px, some of them partly outside, and an empty one."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(number, 2, generator=generator) * torch.tensor([280.0, 240.0]) - 20
    sizes = torch.rand(number, 2, generator=generator) * largest
    sizes[0] = 0
    images = torch.arange(number) % 2
    return torch.cat([images[:, None], corners, corners + sizes], dim=1)


@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('scale', [0.25, 0.0625])
@pytest.mark.parametrize('order', [torch.contiguous_format, torch.channels_last])
def test_cells_are_those_of_mmcv(aligned, scale, order):
    torch.manual_seed(0)
    maps, boxes = torch.randn(SHAPE, dtype=torch.float64), draw_boxes(150).double()
    layer = RoIAlign((7, 5), scale, sampling_ratio=0, aligned=aligned)

    found = roi_align.roi_align(maps.contiguous(memory_format=order), boxes, (7, 5), scale, aligned)

    torch.testing.assert_close(found, layer(maps, boxes), rtol=0, atol=1e-12)


@pytest.mark.parametrize('side', [[52.0, 247.99996948242188], [472.0, 639.9998779296875]])
def test_samples_that_rounding_moves_beyond_the_last_pixel_are_kept(side):
    # The size of a cell is a whole number but for rounding in float32.
    torch.manual_seed(0)
    maps = torch.randn(1, 3, 336, 336)
    box = torch.tensor([[0, side[0], side[0], side[1], side[1]]])
    layer = RoIAlign((7, 7), 0.25, sampling_ratio=0)

    found = roi_align.roi_align(maps, box, (7, 7), 0.25, True)

    torch.testing.assert_close(found, layer(maps, box), rtol=0, atol=1e-4)


@pytest.mark.parametrize('number', [0, 2, 150])
@torch.no_grad()
def test_the_fast_form_is_for_many_boxes(number, monkeypatch):
    calls = []
    fast = roi_align.roi_align
    monkeypatch.setattr(roi_align, 'roi_align', lambda *args: calls.append(args) or fast(*args))
    torch.manual_seed(0)
    maps, boxes = torch.randn(SHAPE), draw_boxes(150)[:number]
    layer = RoIAlign(7, 0.25)

    found = run_roi_align(layer, maps.contiguous(memory_format=torch.channels_last), boxes)

    assert len(calls) == (number == 150)
    torch.testing.assert_close(found, layer(maps, boxes), rtol=0, atol=5e-5)


def test_gradients_are_those_of_mmcv():
    boxes, layer = draw_boxes(150), RoIAlign(7, 0.25)
    maps = torch.randn(SHAPE, requires_grad=True)
    (expected,) = torch.autograd.grad(layer(maps, boxes).square().sum(), maps)
    (found,) = torch.autograd.grad(run_roi_align(layer, maps, boxes).square().sum(), maps)

    assert torch.equal(found, expected)


def test_other_settings_do_not_suit():
    assert suits_table(RoIAlign(7))
    assert not suits_table(RoIAlign(7, sampling_ratio=2))
    assert not suits_table(RoIAlign(7, pool_mode='max'))
    assert not suits_table(RoIAlign(7, use_torchvision=True))
