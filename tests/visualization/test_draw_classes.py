"""``draw_classes``: colours, borders, legend, and what it refuses."""

import numpy as np
import pytest

from mminline.visualization import draw_classes

PALETTE = [(10, 20, 30), (200, 100, 50), (0, 255, 0)]
UNNAMED = ['', '', '']  # no legend


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)


def halves(first: int, second: int, dtype: type = np.uint8) -> np.ndarray:
    class_map = np.full((40, 60), first, dtype)
    class_map[:, 30:] = second
    return class_map


@pytest.mark.parametrize('dtype', [bool, np.uint8, np.int16, np.int64, np.float32])
def test_pixels_are_blended_with_the_colour_of_their_class(image, dtype):
    picture = draw_classes(image, halves(0, 1, dtype), UNNAMED, PALETTE, opacity=0.25)

    colours_BGR = np.array([PALETTE[0][::-1], PALETTE[1][::-1]])[halves(0, 1)]
    expected = 0.75 * image + 0.25 * colours_BGR
    inside = np.r_[0:28, 32:60]  # without the border between them
    assert np.abs(picture - expected)[:, inside].max() <= 0.5
    assert (picture[:, 30] == colours_BGR[:, 30]).all()


def test_more_classes_than_bytes_can_count_get_their_own_colours(image):
    palette = [(index % 256, index // 256, 0) for index in range(300)]
    picture = draw_classes(image, halves(5, 290, np.int64), [''] * 300, palette, opacity=1)

    assert (picture[:, :30] == (0, 0, 5)).all()
    assert (picture[:, 30:] == (0, 1, 290 % 256)).all()


@pytest.mark.parametrize('index', [3, 255, -1])
def test_pixels_without_a_class_stay_as_they_are(image, index):
    picture = draw_classes(image, halves(index, 2, np.int64), UNNAMED, PALETTE)

    np.testing.assert_array_equal(picture[:, :29], image[:, :29])
    assert (picture[:, 31:] != image[:, 31:]).any()


def test_the_legend_names_classes_that_appear_and_no_others():
    image = np.zeros((400, 400, 3), np.uint8)
    class_map = np.zeros((400, 400), np.uint8)
    classes = ['sky', 'road', 'sea']

    def legend(class_map: np.ndarray) -> np.ndarray:
        named = draw_classes(image, class_map, classes, PALETTE)
        return (named != draw_classes(image, class_map, UNNAMED, PALETTE)).any(axis=-1)

    alone = legend(class_map)
    class_map[200:] = 2
    rows = [np.flatnonzero(part.any(axis=1)) for part in (alone, legend(class_map))]
    assert rows[0].min() <= 1
    # A second row of text makes the panel about twice as high.
    assert 1.6 < rows[1].max() / rows[0].max() < 2.1


def test_a_legend_that_does_not_fit_is_cut_or_left_out():
    class_map = np.arange(100 * 100, dtype=np.uint8).reshape(100, 100) % 60
    names = [f'class {index}' for index in range(60)]
    image = np.zeros((100, 100, 3), np.uint8)
    tiny = np.zeros((9, 9, 3), np.uint8)

    assert draw_classes(image, class_map, names).shape == image.shape
    unnamed = draw_classes(tiny, class_map[:9, :9], [''] * 60)
    np.testing.assert_array_equal(draw_classes(tiny, class_map[:9, :9], names), unnamed)


def test_colours_beyond_the_palette_differ(image):
    class_map = np.arange(40 * 60).reshape(40, 60) % 50
    picture = draw_classes(image, class_map, [''] * 50, opacity=1)

    assert len(np.unique(picture.reshape(-1, 3), axis=0)) == 50


def test_the_image_is_left_as_it_is(image):
    before = image.copy()
    draw_classes(image, halves(0, 1), ['a', 'b', 'c'])
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ('image', 'class_map', 'message'),
    [
        (np.zeros((4, 4), np.uint8), np.zeros((4, 4), int), r'shape \(height, width, 3\)'),
        (np.zeros((4, 4, 3)), np.zeros((4, 4), int), 'got float64'),
        (np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5), int), r'\(4, 4\), got \(4, 5\)'),
    ],
)
def test_what_cannot_be_drawn_is_named(image, class_map, message):
    with pytest.raises(ValueError, match=message):
        draw_classes(image, class_map, ['a'])
