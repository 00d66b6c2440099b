"""``draw_instances``: masks, boxes, labels, and what it refuses."""

import numpy as np
import pytest

from mminline.visualization import draw_instances
from mminline.visualization.text import TextStyle

PALETTE = [(250, 0, 0), (0, 0, 240)]
RED, BLUE = (0, 0, 250), (240, 0, 0)
CLASSES = ['cat', 'dog']


@pytest.fixture
def image() -> np.ndarray:
    return np.full((200, 300, 3), 100, np.uint8)


def disc(center: tuple[int, int], radius: int, hole: int = 0) -> np.ndarray:
    y, x = np.ogrid[:200, :300]
    distance = np.hypot(x - center[0], y - center[1])
    return (distance <= radius) & (distance >= hole)


def box_of(mask: np.ndarray) -> list[int]:
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_a_mask_is_blended_and_outlined_and_its_hole_is_not(image):
    mask = disc((150, 110), radius=60, hole=25)
    picture = draw_instances(image, [box_of(mask)], [0], [0.9], [mask], CLASSES, PALETTE)

    assert (picture[110, 150 + 40] == (50, 50, 175)).all()  # half red
    assert (picture[110, 150] == 100).all()  # the hole
    assert (picture[110, 150 + 60] == RED).all()  # the outline
    assert (picture[190, 10] == 100).all()


def test_a_mask_is_coloured_exactly(image):
    mask = np.zeros((200, 300), bool)
    mask[50:150, 60:240] = np.random.default_rng(0).random((100, 180)) < 0.6
    boxes = [box_of(mask)]
    style = TextStyle.for_picture(image)
    outside = np.ones_like(mask)
    outside[: 50 + style.line + 1] = False  # label and upper edge
    outside[:, : 60 + style.line + 1] = outside[:, 240 - style.line - 1 :] = False
    outside[150 - style.line - 1 :] = False

    opaque = draw_instances(image, boxes, [0], [1.0], [mask], CLASSES, PALETTE, opacity=1.0)

    assert ((opaque == RED).all(axis=-1) == mask)[outside].all()


def test_only_the_inside_of_a_box_is_read(image):
    class Lazy:
        """A mask that exists only where it is asked for."""

        def __getitem__(self, window: tuple[slice, slice]) -> np.ndarray:
            rows, columns = window
            assert (rows.start, rows.stop) == (20, 60)
            assert (columns.start, columns.stop) == (30, 91)
            return np.ones((40, 61), bool)

    lazy = draw_instances(image, [[30, 20, 90.5, 60]], [1], [0.5], [Lazy()], CLASSES, PALETTE)

    whole = np.ones((1, 200, 300), bool)
    full = draw_instances(image, [[30, 20, 90.5, 60]], [1], [0.5], whole, CLASSES, PALETTE)
    np.testing.assert_array_equal(lazy, full)


def test_small_objects_are_in_front_of_large_ones(image):
    masks = [disc((150, 110), 20), disc((150, 110), 80)]
    boxes = [box_of(mask) for mask in masks]
    for order in ([0, 1], [1, 0]):
        picture = draw_instances(
            image, [boxes[i] for i in order], order, [1.0, 1.0], [masks[i] for i in order],
            CLASSES, PALETTE,
        )  # fmt: skip
        assert (picture[110, 150] == (50, 50, 175)).all()
        assert (picture[110, 200] == (170, 50, 50)).all()


def test_boxes_and_labels_are_drawn_without_masks(image):
    picture = draw_instances(image, [[50, 60, 200, 150]], [1], [0.5], None, CLASSES, PALETTE)

    for y, x in ((60, 120), (149, 120), (100, 50), (100, 199)):
        assert (picture[y, x] == BLUE).all()
    assert (picture[100, 120] == 100).all()
    width, height = TextStyle.for_picture(image).size('dog 0.50')
    label = picture[60 - height : 60, 50 : 50 + width]
    assert (label == BLUE).all(axis=-1).mean() > 0.5
    assert (label == 255).all(axis=-1).any()  # white on blue


@pytest.mark.parametrize('box', [[-40, -40, 30, 30], [280, 190, 500, 500], [299, 0, 300, 1]])
def test_boxes_at_the_edges_keep_their_labels_inside(image, box):
    picture = draw_instances(image, [box], [0], [0.5], None, CLASSES, PALETTE)

    red = (picture == RED).all(axis=-1)
    width, height = TextStyle.for_picture(image).size('cat 0.50')
    assert red.sum() > 0.5 * width * height


def test_a_model_without_boxes_gets_those_of_its_masks(image):
    mask = disc((150, 110), 40)
    found = draw_instances(image, [[0, 0, 0, 0]], [0], [0.9], [mask], CLASSES, PALETTE)

    given = draw_instances(image, [box_of(mask)], [0], [0.9], [mask], CLASSES, PALETTE)
    np.testing.assert_array_equal(found, given)


def test_nothing_found_leaves_the_image(image):
    empty = np.zeros((0, 200, 300), bool)
    for masks in (None, empty):
        picture = draw_instances(image, np.zeros((0, 4)), [], [], masks, CLASSES)
        np.testing.assert_array_equal(picture, image)
        assert picture is not image


def test_text_and_lines_grow_with_the_picture():
    small, large = (
        TextStyle.for_picture(np.zeros((*shape, 3))) for shape in ((128, 128), (2250, 4000))
    )
    assert (small.line, small.stroke) == (1, 1)
    assert large.line > 4
    assert large.size('dog')[1] > 4 * small.size('dog')[1]


@pytest.mark.parametrize(
    ('boxes', 'labels', 'message'),
    [
        ([[0, 0, 9, 9]], [0, 1], "got {'boxes': 1, 'labels': 2"),
        ([[0, 0, 9, 9, 0.5]], [0], 'left, top, right, bottom, got 5 numbers'),
    ],
)
def test_objects_that_do_not_fit_together_are_named(image, boxes, labels, message):
    with pytest.raises(ValueError, match=message):
        draw_instances(image, boxes, labels, [0.5] * len(labels), None, CLASSES)
