"""Maps in another order in memory: the same values, copied in bands where nobody watches."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from helpers.tiny import image
from mminline import execution
from mminline.execution import order, threads

ORDERS = torch.contiguous_format, torch.channels_last


@pytest.fixture
def bands(monkeypatch) -> list[range]:
    """Pieces of a row on three threads; the list is filled with the bands that have run."""
    done = []

    def note(function, bands, num_threads):
        done.extend(bands)
        return threads.map_bands(function, bands, num_threads)

    monkeypatch.setattr(order, 'PIECE', 1)
    monkeypatch.setattr(order, 'count_band_threads', lambda device: 3)
    monkeypatch.setattr(order, 'map_bands', note)
    return done


@pytest.mark.parametrize(
    ('shape', 'cut'),
    [
        ((2, 5, 7, 4), True),
        ((1, 3, 1, 6), True),
        ((1, 64, 40, 1), True),
        ((3, 1, 4, 4), False),  # of one channel: both orders are the same
    ],
)
@pytest.mark.parametrize('order', ORDERS)
@torch.no_grad()
def test_values_stay_and_the_order_is_that_of_contiguous(shape, cut, order, bands):
    other = ORDERS[1 - ORDERS.index(order)]
    map_BCHW = image(*shape).contiguous(memory_format=other)
    ordered = execution.to_order(map_BCHW, order)

    assert torch.equal(ordered, map_BCHW)
    assert ordered.stride() == map_BCHW.contiguous(memory_format=order).stride()
    assert [row for band in bands for row in band] == list(range(shape[2]) if cut else [])


@torch.no_grad()
def test_a_map_in_this_order_is_not_copied(bands):
    map_BCHW = image(2, 5, 7, 4)
    assert execution.to_order(map_BCHW, torch.contiguous_format) is map_BCHW
    assert execution.to_order(map_BCHW[:, :, 1:3], torch.contiguous_format).is_contiguous()
    assert bands  # a part of a map is


def test_gradients_and_observers_see_one_copy(bands):
    map_BCHW = image(1, 3, 8, 8).requires_grad_()
    ordered = execution.to_order(map_BCHW, torch.channels_last)
    ordered.sum().backward()
    assert torch.equal(map_BCHW.grad, torch.ones_like(map_BCHW))
    with torch.no_grad(), FlopCounterMode(display=False):
        execution.to_order(map_BCHW, torch.channels_last)
    assert not bands
