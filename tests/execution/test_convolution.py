"""Which convolutions run by Winograd's algorithm."""

import contextvars

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mminline.execution import convolution, winograd
from mminline.execution.convolution import as_part_of, note_images, run_convolution, suits_winograd


@pytest.fixture(autouse=True)
def no_image(monkeypatch):
    """Forget the image that a backbone of another test saw."""
    monkeypatch.setattr(convolution, '_image', contextvars.ContextVar('image', default=None))


@pytest.fixture
def calls(monkeypatch):
    """Shapes that the fast form was called with."""
    shapes = []
    convolve = winograd.convolve

    def note(x, *args):
        shapes.append(tuple(x.shape))
        return convolve(x, *args)

    monkeypatch.setattr(winograd, 'convolve', note)
    return shapes


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('padding', [0, 1])
@pytest.mark.parametrize('shape', [(1, 64, 41, 53), (30, 64, 14, 14)])
@torch.no_grad()
def test_large_maps_and_batches_get_the_fast_form(shape, padding, bias, calls):
    torch.manual_seed(0)
    conv = nn.Conv2d(64, 72, 3, padding=padding, bias=bias)
    x = torch.randn(shape)

    found = run_convolution(conv, x)

    assert calls == [shape]
    expected = conv.double()(x.double())
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@torch.no_grad()
def test_a_part_of_an_image_takes_the_form_of_the_whole(calls):
    conv, x = nn.Conv2d(64, 64, 3, padding=1), torch.randn(1, 64, 16, 16)

    run_convolution(conv, x)
    with as_part_of((2048, 2048), (64, 64)):
        run_convolution(conv, x)
    run_convolution(conv, x)

    assert calls == [(1, 64, 16, 16)]


@torch.no_grad()
def test_coarse_maps_run_directly(calls):
    conv, regions = nn.Conv2d(64, 64, 3, padding=1), torch.randn(30, 64, 14, 14)
    image = torch.randn(2, 3, 320, 480)

    note_images(image)
    for stride in (4, 8, 16, 32):
        run_convolution(conv, torch.randn(2, 64, 320 // stride, 480 // stride))
    run_convolution(conv, regions)

    assert calls == [(2, 64, 80, 120), (2, 64, 40, 60), (30, 64, 14, 14)]


def test_whatever_needs_the_ordinary_form_gets_it(calls):
    conv, x = nn.Conv2d(64, 64, 3, padding=1), torch.randn(1, 64, 41, 53)
    run_convolution(conv, x).sum().backward()
    with torch.no_grad():
        with torch.autocast('cpu', torch.bfloat16):
            run_convolution(conv, x)
        run_convolution(conv.double(), x.double())
        conv.float()
        run_convolution(conv, x[:, :, :5, :5])
        run_convolution(conv, x[:0])
        with FlopCounterMode(display=False) as counter:
            run_convolution(conv, x)
        with pytest.raises(RuntimeError, match='expected input.* to have 64 channels'):
            run_convolution(conv, x[:, :32])

    assert conv.weight.grad is not None
    assert counter.get_total_flops() == 2 * 9 * 64 * 64 * 41 * 53
    assert not calls


@pytest.mark.parametrize(
    'options',
    [
        dict(kernel_size=1),
        dict(kernel_size=3, stride=2),
        dict(kernel_size=3, dilation=2),
        dict(kernel_size=3, groups=2),
        dict(kernel_size=3, padding=1, padding_mode='reflect'),
        dict(kernel_size=3, padding='same'),
    ],
)
def test_other_convolutions_do_not_suit(options):
    assert suits_winograd(nn.Conv2d(64, 64, 3, padding=1))
    assert not suits_winograd(nn.Conv2d(64, 64, **options))
    assert not suits_winograd(nn.Conv2d(8, 64, 3, padding=1))
