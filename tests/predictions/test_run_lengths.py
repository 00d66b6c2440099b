"""Run lengths are those of pycocotools."""

import numpy as np
import pytest
from pycocotools import mask as coco

from mminline.predictions import encode_mask

SHAPES = [(1, 1), (1, 7), (7, 1), (37, 91), (300, 211)]


def masks(shape: tuple[int, int]) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0).random(shape)
    inner = np.zeros(shape, bool)
    inner[shape[0] // 3 : shape[0] // 2 + 1, shape[1] // 4 : shape[1] // 2 + 1] = True
    stripes = np.zeros(shape, bool)
    stripes[:, 1::3] = stripes[:, 2::3] = True  # runs that go on in the next column
    return dict(
        empty=noise < 0, full=noise >= 0, even=noise < 0.5, rare=noise < 0.02, inner=inner,
        stripes=stripes, rest=~inner,
    )  # fmt: skip


@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_run_lengths_are_those_of_pycocotools(shape):
    for name, mask in masks(shape).items():
        expected = coco.encode(np.asfortranarray(mask, np.uint8))
        expected = dict(size=expected['size'], counts=expected['counts'].decode())
        assert encode_mask(mask) == expected, name
        np.testing.assert_array_equal(coco.decode(encode_mask(mask)), mask)


def test_any_layout_in_memory_gives_the_same():
    mask = masks((37, 91))['even']
    for other in (np.asfortranarray(mask), mask.astype(np.int64), np.repeat(mask, 2, 1)[:, ::2]):
        assert encode_mask(other) == encode_mask(mask)
