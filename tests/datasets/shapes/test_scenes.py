"""Scenes of Shapes: pixels by seed, masks, what varies and what does not."""

import hashlib

import numpy as np
import pytest

from mminline.datasets import CLASSES, LEVELS, draw_scene


def interior(instances_HW, instance):
    """Pixels of a figure all of whose neighbours belong to it, so that no edge is blended in."""
    same = np.pad(instances_HW == instance, 1)
    height, width = instances_HW.shape
    shifts = [(y, x) for y in range(3) for x in range(3)]
    return np.all([same[y : y + height, x : x + width] for y, x in shifts], axis=0)


@pytest.mark.parametrize(
    'level, expected',
    [
        ('plain', 'adeed22d08a4d3f0'),
        ('textured', '24be9c29f5d39f43'),
        ('cluttered', '2c9dc61af9c5abf9'),
    ],
)
def test_scenes_have_the_same_pixels_on_every_machine(level, expected):
    digest = hashlib.sha256()
    for split in ('train', 'val'):
        for index in range(20):
            scene = draw_scene(index, split, level=level)
            digest.update(scene.image_HWC.tobytes() + scene.instances_HW.tobytes())
            digest.update(bytes(scene.labels))

    assert digest.hexdigest()[:16] == expected


def test_scenes_of_varying_size_have_the_same_pixels_on_every_machine():
    digest = hashlib.sha256()
    for split in ('train', 'val'):
        for index in range(20):
            scene = draw_scene(index, split, size=(64, 160), level='cluttered')
            assert scene.image_HWC.shape[:2] == scene.instances_HW.shape
            digest.update(scene.image_HWC.tobytes() + scene.instances_HW.tobytes())

    assert digest.hexdigest()[:16] == '7736689720f67e90'


def test_height_and_width_vary_by_themselves_and_reach_both_ends():
    shapes = np.array([draw_scene(index, size=(64, 68)).instances_HW.shape for index in range(100)])
    heights, widths = shapes.T

    assert set(heights) == set(widths) == {64, 65, 66, 67, 68}
    assert len(set(map(tuple, shapes))) > 15  # of 25
    assert len({draw_scene(0, seed=seed, size=(64, 160)).image_HWC.shape for seed in range(9)}) > 5
    # Sides have a stream of their own: a range of one size changes nothing.
    one, other = (draw_scene(3, size=size).image_HWC for size in (96, (96, 96)))
    assert np.array_equal(one, other)


@pytest.mark.parametrize('shorter', ['height', 'width'])
def test_figures_lie_anywhere_in_a_scene_that_is_not_square(shorter):
    scenes = (draw_scene(index, size=(64, 160)) for index in range(150))
    long = [scene.instances_HW if shorter == 'height' else scene.instances_HW.T for scene in scenes]
    far = []
    for instances_SL in long:
        short_side, long_side = instances_SL.shape
        if 2 * long_side > 3 * short_side:
            columns = np.flatnonzero(instances_SL.any(axis=0))
            far.append((columns[0] / long_side, columns[-1] / long_side))
    first, last = np.array(far).T

    assert len(far) > 3
    assert first.min() < 0.2 and last.max() > 0.8


def test_index_split_and_seed_each_give_another_scene():
    keys = [dict(index=0), dict(index=1), dict(index=0, split='val'), dict(index=0, seed=1)]
    images = {draw_scene(**key).image_HWC.tobytes() for key in keys}

    assert len(images) == len(keys)


def test_masks_hold_the_pixels_in_which_a_figure_is_seen():
    # In plain scenes light and shadow change how bright a figure is, but not its hue: a mask that
    # held a pixel of another figure, or of the background, would hold another hue.
    for index in range(30):
        scene = draw_scene(index)
        image = scene.image_HWC.astype(np.float64) + 1
        hues = image / image.sum(axis=-1, keepdims=True)
        for instance in range(1, len(scene.labels) + 1):
            inside = hues[interior(scene.instances_HW, instance)]
            assert abs(inside - np.median(inside, axis=0)).max() < 0.05
            assert len(inside) > 10


def test_every_figure_is_in_sight_and_sizes_and_counts_vary():
    counts, widths = set(), []
    for index in range(100):
        scene = draw_scene(index, level='cluttered')
        assert set(np.unique(scene.instances_HW)) - {0} == set(range(1, len(scene.labels) + 1))
        counts.add(len(scene.labels))
        for instance in range(1, len(scene.labels) + 1):
            columns = np.flatnonzero(np.any(scene.instances_HW == instance, axis=0))
            widths.append(columns[-1] - columns[0] + 1)

    assert counts == {2, 3, 4, 5, 6}
    assert min(widths) >= 10 and 25 < np.median(widths) < 45 and 60 < max(widths) <= 80


def test_colour_does_not_tell_the_class():
    colours = [[] for _ in CLASSES]
    for index in range(400):
        scene = draw_scene(index, size=64)
        for number, label in enumerate(scene.labels, start=1):
            colours[label].append(scene.image_HWC[scene.instances_HW == number].mean(axis=0))
    means = np.array([np.mean(rows, axis=0) for rows in colours])

    assert min(len(rows) for rows in colours) > 150
    assert np.ptp(means, axis=0).max() < 25 < np.std(np.concatenate(colours), axis=0).min()


def test_backgrounds_grow_rougher_by_texture_and_then_by_clutter_and_noise():
    def roughness(level):
        steps = []
        for index in range(20):
            scene = draw_scene(index, level=level)
            away = interior(scene.instances_HW, 0)[:, 1:]
            steps.append(abs(np.diff(scene.image_HWC.astype(int), axis=1))[away].mean())
        return np.mean(steps)

    plain, textured, cluttered = (roughness(level) for level in LEVELS)
    assert 2 * plain < textured and 2 * textured < cluttered


@pytest.mark.parametrize(
    'setting, message',
    [
        (dict(split='test'), "split has to be one of .*'train'.*, got split='test'"),
        (dict(index=-1), 'index has to be at least 0, got index=-1'),
    ],
)
def test_scenes_that_cannot_be_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        draw_scene(**{'index': 0, **setting})
