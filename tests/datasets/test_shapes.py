import hashlib
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from mminline.datasets import (
    CLASSES,
    LEVELS,
    PALETTE,
    SEMANTIC_CLASSES,
    SEMANTIC_PALETTE,
    draw_scene,
    write_shapes,
    writer,
)
from mminline.datasets.draws import Draws
from mminline.datasets.figures import (
    DISCS,
    FULL,
    POLYGONS,
    TURNS,
    UNITS,
    Stamp,
    direction,
    figure,
    polygon,
    turned,
)
from mminline.datasets.occlusion import Occlusion

MAKE_SHAPES = Path(__file__).parents[2] / 'tools' / 'make_shapes.py'


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp('shapes')
    write_shapes(root, train=2, val=12, size=96, level='cluttered')
    return root


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob('*') if path.is_file()}


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


def test_index_split_and_seed_each_give_another_scene():
    keys = [dict(index=0), dict(index=1), dict(index=0, split='val'), dict(index=0, seed=1)]
    images = {draw_scene(**key).image_HWC.tobytes() for key in keys}

    assert len(images) == len(keys)


def test_draws_stay_in_range_and_reach_every_value():
    draws = Draws(3)

    assert {draws.integer(-2, 2) for _ in range(200)} == set(range(-2, 3))
    assert set(draws.array((20, 10), 5).flat) == set(range(5))
    assert sorted(draws.order(9)) == list(range(9))


def test_directions_are_exact_and_go_once_around():
    cosines, sines, divisors = np.array([direction(turn) for turn in range(TURNS)]).T
    angles = np.arctan2(sines, cosines) % (2 * np.pi)

    assert np.array_equal(cosines**2 + sines**2, divisors**2)
    assert np.all(np.diff(angles) > 0) and angles[0] == 0


@pytest.mark.parametrize('name', CLASSES)
def test_figures_cover_the_area_of_their_outline(name):
    radius = 25 * UNITS
    if name in DISCS:
        outer, inner = DISCS[name]
        expected = np.pi * (outer**2 - inner**2)
    else:
        x, y = np.array(POLYGONS[name]).T
        expected = abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2
    expected *= (radius / UNITS / 1000) ** 2
    for turn in (0, 17, 100):
        stamp = figure(name, (1000, 1003), radius, turn)
        assert stamp.coverage_HW.sum() / FULL == pytest.approx(expected, rel=0.01)


def test_polygons_take_the_points_that_lie_inside():
    # Half-planes tell what is inside a triangle, another way than the crossings of the polygon.
    corners = turned(POLYGONS['triangle'], (700, 640), 500, turn=29)
    stamp = polygon(corners)
    height, width = stamp.coverage_HW.shape
    step = UNITS // 4
    ys, xs = np.mgrid[: 4 * height, : 4 * width] * step + step // 2
    ys, xs = ys + stamp.top * UNITS, xs + stamp.left * UNITS
    inside = np.ones(ys.shape, bool)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside &= (x1 - x0) * (ys - y0) - (y1 - y0) * (xs - x0) > 0

    counts = inside.reshape(height, 4, width, 4).sum(axis=(1, 3))
    assert counts.max() == FULL
    assert abs(counts - stamp.coverage_HW).sum() <= 1


def test_a_stamp_over_the_border_meets_only_the_canvas():
    canvas = np.zeros((8, 8), int)
    stamp = Stamp(np.arange(12).reshape(3, 4), top=-1, left=6)
    on_canvas, in_stamp = stamp.windows(8)
    canvas[on_canvas] = stamp.coverage_HW[in_stamp]

    assert canvas[:2, 6:].tolist() == [[4, 5], [8, 9]]
    assert canvas.sum() == 4 + 5 + 8 + 9
    far = Stamp(stamp.coverage_HW, top=20, left=-9)
    assert canvas[far.windows(8)[0]].size == 0 == far.coverage_HW[far.windows(8)[1]].size


def test_a_figure_may_lose_a_quarter_to_others_and_no_more():
    occlusion = Occlusion(10)
    occlusion.add_figure(Stamp(np.full((10, 10), FULL), 0, 0))
    occlusion.add_background(Stamp(np.full((2, 10), FULL // 2), 0, 0))

    assert occlusion.areas.tolist() == [100] and occlusion.visible.tolist() == [80]
    assert occlusion.leaves_enough(Stamp(np.full((1, 5), FULL), 5, 0))
    assert not occlusion.leaves_enough(Stamp(np.full((1, 6), FULL), 5, 0))
    # What is hidden already cannot be hidden again, and less than half of a pixel does not count.
    assert occlusion.leaves_enough(Stamp(np.full((2, 10), FULL), 0, 0))
    assert occlusion.leaves_enough(Stamp(np.full((10, 10), FULL // 2 - 1), 0, 0))


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


def test_written_files_hold_the_scenes(data_root):
    import mmcv
    from pycocotools import mask

    coco = json.loads((data_root / 'annotations' / 'instances_val.json').read_text())
    assert [category['name'] for category in coco['categories']] == list(CLASSES)
    assert [image['file_name'] for image in coco['images']][-1] == '000011.png'
    assert len({entry['id'] for entry in coco['annotations']}) == len(coco['annotations'])
    for index in range(12):
        scene = draw_scene(index, 'val', size=96, level='cluttered')
        folders = (data_root / kind / 'val' / f'{index:06d}.png' for kind in ('images', 'semantic'))
        image, semantic = (mmcv.imread(path, flag='unchanged') for path in folders)
        assert np.array_equal(image[..., ::-1], scene.image_HWC)
        assert semantic.dtype == np.uint8 and np.array_equal(semantic, scene.semantic_HW)
        entries = [entry for entry in coco['annotations'] if entry['image_id'] == index]
        assert [entry['category_id'] - 1 for entry in entries] == list(scene.labels)
        for number, entry in enumerate(entries, start=1):
            seen = scene.instances_HW == number
            (top, left), (bottom, right) = (
                side(np.argwhere(seen), axis=0) for side in (np.min, np.max)
            )
            assert np.array_equal(mask.decode(entry['segmentation']), seen)
            assert entry['bbox'] == [left, top, right - left + 1, bottom - top + 1]
            assert entry['area'] == seen.sum()
            assert set(scene.semantic_HW[seen]) == {entry['category_id']}


def test_a_scene_does_not_depend_on_how_many_are_written(data_root, tmp_path):
    write_shapes(tmp_path, train=1, val=1, size=96, level='cluttered')

    name = Path('images', 'val', '000000.png')
    assert (tmp_path / name).read_bytes() == (data_root / name).read_bytes()


def test_writing_again_does_nothing_and_other_settings_need_force(tmp_path, capsys):
    main = runpy.run_path(str(MAKE_SHAPES))['main']
    arguments = ['--root', str(tmp_path / 'shapes'), '--train', '3', '--val', '1', '--size', '64']
    main(arguments)
    written = files(tmp_path)
    assert len(written) == 2 * 4 + 2 + 1
    assert 'wrote' in capsys.readouterr().out

    main(arguments)
    assert 'nothing to do' in capsys.readouterr().out
    changes = "train is 3 there, 2 was asked for; level is 'plain' there, 'textured' was asked for"
    with pytest.raises(SystemExit, match=f'make_shapes: .*{changes}.*--force'):
        main([*arguments, '--train', '2', '--level', 'textured'])
    assert files(tmp_path) == written

    main([*arguments, '--train', '2', '--force'])
    # No scene of the old data set is left behind for mmseg to find.
    assert len(files(tmp_path)) == 2 * 3 + 2 + 1


def test_an_interrupted_data_set_is_drawn_again(tmp_path, monkeypatch):
    def interrupted(index, split, **settings):
        if split == 'val':
            raise KeyboardInterrupt('Ctrl-C')
        return draw_scene(index, split, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(writer, 'draw_scene', interrupted)
        with pytest.raises(KeyboardInterrupt, match='Ctrl-C'):
            write_shapes(tmp_path, train=4, val=1, size=64)
    assert not (tmp_path / 'dataset.json').exists()

    assert write_shapes(tmp_path, train=2, val=1, size=64)
    assert not write_shapes(tmp_path, train=2, val=1, size=64)
    assert len(list((tmp_path / 'images' / 'train').iterdir())) == 2


@pytest.mark.parametrize('record', [None, '{"dataset": "other"}', '[]', 'no json'])
def test_a_folder_of_someone_else_is_left_alone(tmp_path, record):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / 'precious.png').write_bytes(b'precious')
    if record is not None:
        (tmp_path / 'dataset.json').write_text(record)
    before = files(tmp_path)

    with pytest.raises(ValueError, match='root has to be empty or hold a Shapes data set'):
        write_shapes(tmp_path, train=1, val=1, size=64, force=True)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    'setting, message',
    [
        (dict(size=63), 'size has to be at least 64, got size=63'),
        (dict(train=0), 'train has to be at least 1, got train=0'),
        (dict(val=-1), 'val has to be at least 1, got val=-1'),
        (dict(seed=-1), 'seed has to be at least 0, got seed=-1'),
        (dict(level='hard'), "level has to be one of .*'cluttered'.*, got level='hard'"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_written(tmp_path, setting, message):
    with pytest.raises(ValueError, match=message):
        write_shapes(tmp_path / 'shapes', **setting)
    assert not (tmp_path / 'shapes').exists()


def test_a_file_as_root_is_refused(tmp_path):
    (tmp_path / 'shapes').touch()
    with pytest.raises(ValueError, match='root has to be a folder'):
        write_shapes(tmp_path / 'shapes')


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


def test_mmdet_reads_the_instances_and_scores_the_truth_as_perfect(data_root):
    from mmdet.datasets import CocoDataset
    from mmdet.evaluation import CocoMetric

    dataset = CocoDataset(
        data_root=str(data_root),
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='images/val'),
        metainfo=dict(classes=CLASSES, palette=PALETTE),
        test_mode=True,
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True),
            dict(type='mmdet.PackDetInputs', meta_keys=('img_id', 'ori_shape')),
        ],
    )
    metric = CocoMetric(
        str(data_root / 'annotations' / 'instances_val.json'), metric=['bbox', 'segm']
    )
    metric.dataset_meta = dataset.metainfo
    for sample in dataset:
        truth = sample['data_samples'].gt_instances
        found = dict(
            bboxes=truth.bboxes.tensor,
            labels=truth.labels,
            masks=truth.masks.to_tensor(bool, 'cpu'),
            scores=truth.bboxes.tensor.new_ones(len(truth)),
        )
        metric.process({}, [{**sample['data_samples'].to_dict(), 'pred_instances': found}])
    scores = metric.evaluate(len(dataset))

    assert len(dataset) == 12
    assert scores['coco/bbox_mAP'] == scores['coco/segm_mAP'] == 1.0


def test_mmseg_reads_the_classes_and_scores_the_truth_as_perfect(data_root):
    from mmseg.datasets import BaseSegDataset
    from mmseg.evaluation import IoUMetric

    dataset = BaseSegDataset(
        data_root=str(data_root),
        data_prefix=dict(img_path='images/val', seg_map_path='semantic/val'),
        metainfo=dict(classes=SEMANTIC_CLASSES, palette=SEMANTIC_PALETTE),
        img_suffix='.png',
        seg_map_suffix='.png',
        reduce_zero_label=False,
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='mmseg.LoadAnnotations'),
            dict(type='mmseg.PackSegInputs'),
        ],
    )
    metric = IoUMetric()
    metric.dataset_meta = dataset.metainfo
    seen = set()
    for sample in dataset:
        truth = sample['data_samples'].gt_sem_seg
        seen |= set(truth.data.unique().tolist())
        metric.process(
            {}, [dict(gt_sem_seg=dict(data=truth.data), pred_sem_seg=dict(data=truth.data))]
        )
    scores = metric.evaluate(len(dataset))

    assert seen == set(range(len(SEMANTIC_CLASSES)))
    assert scores['mIoU'] == scores['aAcc'] == 100
