"""Class scores row by row are those of ``F.interpolate``, bit by bit."""

import pytest
import torch
import torch.nn.functional as F

from mminline.execution import score_rows
from mminline.execution.score_rows import OTHER_KERNEL, from_scores

SIZES = [
    ((16, 24), (64, 96)),  # four times, exact in floating point
    ((17, 23), (67, 91)),
    ((61, 80), (243, 301)),
    ((128, 10), (517, 40)),
    ((9, 150), (9, 211)),
    ((30, 50), (211, 50)),
    ((97, 3), (1000, 7)),
    ((90, 70), (71, 60)),  # smaller
    ((1, 4), (100, 90)),
    ((1, 1), (100, 90)),  # has any layout of memory
    ((30, 30), (60, 50)),  # another kernel
    ((30, 30), (30, 30)),
]


def scores(shape: tuple[int, int], num_classes: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_classes, *shape, generator=generator)


def interpolate(scores_CHW: torch.Tensor, size: tuple[int, int], align: bool) -> torch.Tensor:
    return F.interpolate(scores_CHW[None], size, mode='bilinear', align_corners=align)[0]


@pytest.mark.parametrize('align', [False, True])
@pytest.mark.parametrize(('shape', 'size'), SIZES, ids=str)
def test_resized_rows_have_the_bits_of_interpolate(shape, size, align):
    resized = from_scores(scores(shape)).resize(size, align)

    assert resized.shape == size
    assert torch.equal(resized.stack(), interpolate(scores(shape), size, align))


def test_doubles_are_weighed_as_doubles():
    some = scores((61, 80)).double()

    resized = from_scores(some).resize((243, 301), False).stack()

    assert torch.equal(resized, interpolate(some, (243, 301), False))


def test_a_small_part_has_the_bits_of_the_whole():
    some = scores((40, 50))
    whole = interpolate(some, (80, 100), False)
    part = some[:, :20, 10:30]
    assert not torch.equal(interpolate(part, (40, 40), False)[:, :38, 2:38], whole[:, :38, 22:58])

    resized = from_scores(part).resize((40, 40), False, whole_size=(80, 100)).stack()

    assert torch.equal(resized[:, :38, 2:38], whole[:, :38, 22:58])


@pytest.mark.parametrize('rows_in', [2, 31, 64, 100, 171])
def test_every_number_of_rows_is_weighed_as_the_kernel_does(rows_in):
    for rows_out in (*range(OTHER_KERNEL, 400, 37), 1023, 2250):
        some = scores((rows_in, 2), num_classes=1)
        resized = from_scores(some).resize((rows_out, 2), False).stack()
        assert torch.equal(resized, interpolate(some, (rows_out, 2), False)), rows_out


def test_resizing_cropping_and_resizing_again_is_the_same_as_at_once():
    some = scores((40, 50))
    rows = from_scores(some).resize((160, 200), False)
    rows = rows.crop(slice(3, 150), slice(0, 190)).resize((300, 411), False)

    whole = interpolate(some, (160, 200), False)[:, 3:150, :190]
    assert torch.equal(rows.argmax(), interpolate(whole, (300, 411), False).argmax(dim=0))


def test_of_equal_scores_the_first_class_is_chosen():
    some = scores((40, 50), num_classes=9).round()  # many are equal

    found = from_scores(some).argmax()

    assert torch.equal(found, some.argmax(dim=0))
    assert found.dtype == torch.int64


def test_rows_on_several_threads_give_the_same_classes(monkeypatch):
    monkeypatch.setattr(score_rows, 'count_band_threads', lambda device: 3)
    some = scores((40, 50))
    rows = from_scores(some).resize((160, 200), False).resize((300, 411), False)

    whole = interpolate(interpolate(some, (160, 200), False), (300, 411), False)
    for _ in range(5):
        assert torch.equal(rows.argmax(), whole.argmax(dim=0))


def test_each_row_is_widened_once(monkeypatch):
    monkeypatch.setattr(score_rows, 'count_band_threads', lambda device: 1)
    some = scores((40, 50))
    read = []
    source = from_scores(some)
    source = source._replace(read=lambda row: read.append(row) or some[:, row])

    source.resize((160, 200), False).argmax()

    assert read == list(range(40))


def test_not_a_number_is_a_class_too():
    assert from_scores(torch.full((3, 2, 2), torch.nan)).argmax().max() < 3


def test_scores_in_any_layout_of_memory_are_left_as_they_are():
    some = scores((40, 50))[None].contiguous(memory_format=torch.channels_last)[0]
    before = some.clone()

    resized = from_scores(some).resize((160, 200), False)

    assert torch.equal(resized.argmax(), interpolate(before, (160, 200), False).argmax(dim=0))
    from_scores(some).argmax()
    assert torch.equal(some, before)
