"""Pictures of weights: colours, places, marks."""

import numpy as np
import pytest

from mminline.explore.drawing import add_mark, add_scale, draw_weights, pale_grey
from mminline.explore.images import read_image, resize, shown_scale

BLUE, GREEN, RED = range(3)


@pytest.fixture
def pale():
    return pale_grey(np.full((40, 60, 3), 100, np.uint8))


def test_positive_is_red_negative_blue_and_zero_nearly_the_image(pale):
    drawn = draw_weights(pale, np.array([[1.0, -1.0, 0.0]]), (60, 40)).astype(int)

    assert drawn[20, 10, RED] > drawn[20, 10, BLUE] + 50
    assert drawn[20, 30, BLUE] > drawn[20, 30, RED] + 50
    assert abs(drawn[20, 50] - pale[20, 50].astype(int)).max() < 20


def test_both_signs_have_the_same_range(pale):
    half, full = (
        draw_weights(pale, np.array([[0.5, other]]), (60, 40))[20, 10] for other in (-1.0, 0.5)
    )
    assert int(full[RED]) - int(full[GREEN]) > int(half[RED]) - int(half[GREEN])


def test_cells_beyond_the_image_are_cut_off(pale):
    values = np.array([[1.0, 1.0, 0.0, 0.0]])
    # The map is twice as wide as the image, so the image lies under its first half.
    drawn = draw_weights(pale, values, (120, 40))

    assert drawn.shape == pale.shape
    assert (drawn == drawn[0, 0]).all()
    assert drawn[0, 0, RED] > drawn[0, 0, BLUE]


def test_weights_of_nothing_but_zeros_are_drawn(pale):
    assert draw_weights(pale, np.zeros((4, 6)), (60, 40)).shape == pale.shape


def test_a_mark_is_at_its_point_and_on_a_copy(pale):
    before = pale.copy()
    marked = add_mark(pale, (45, 10))

    assert (pale == before).all()
    rows, columns = (marked != pale).any(axis=-1).nonzero()
    assert abs(rows.mean() - 10) < 1 and abs(columns.mean() - 45) < 1


def test_the_scale_stands_below_the_picture(pale):
    scaled = add_scale(pale, 3.5)

    assert (scaled[:40] == pale).all()
    assert scaled[40, 0, BLUE] > scaled[40, 0, RED]
    assert scaled[40, -1, RED] > scaled[40, -1, BLUE]


@pytest.mark.parametrize(
    ('height', 'width', 'shown'), [(32, 64, 640), (900, 700, 900), (3000, 400, 1280)]
)
def test_pictures_have_a_size_that_can_be_seen_and_sent(height, width, shown):
    image = np.zeros((height, width, 3), np.uint8)
    picture = resize(image, shown_scale(image))

    assert max(picture.shape) == shown
    assert picture.shape[0] / picture.shape[1] == pytest.approx(height / width, rel=0.01)


def test_an_image_with_another_name_is_read(tmp_path):
    # Uploads may have any name; what counts is what is in the file.
    from helpers.explored import write_image

    path = write_image(tmp_path / 'noise.png').rename(tmp_path / 'noise')
    assert read_image(path).shape == (48, 64, 3)
