"""Shapes on disk: what is written, what is kept, and how mmdet and mmseg read it."""

import json
from pathlib import Path

import numpy as np
import pytest

from mminline.datasets import (
    CLASSES,
    PALETTE,
    SEMANTIC_CLASSES,
    SEMANTIC_PALETTE,
    draw_scene,
    write_shapes,
)
from mminline.datasets.shapes import writer


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp('shapes')
    write_shapes(root, train=2, val=12, size=96, level='cluttered')
    return root


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob('*') if path.is_file()}


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


def test_scenes_of_varying_size_are_written_with_their_size(tmp_path):
    import mmcv

    assert write_shapes(tmp_path, train=1, val=6, size=(64, 100))
    coco = json.loads((tmp_path / 'annotations' / 'instances_val.json').read_text())
    shapes = [(image['height'], image['width']) for image in coco['images']]

    assert shapes == [
        draw_scene(index, 'val', size=(64, 100)).instances_HW.shape for index in range(6)
    ]
    assert len(set(shapes)) > 3
    for image, shape in zip(coco['images'], shapes, strict=True):
        for kind in ('images', 'semantic'):
            written = mmcv.imread(tmp_path / kind / 'val' / image['file_name'], flag='unchanged')
            assert written.shape[:2] == shape
    assert not write_shapes(tmp_path, train=1, val=6, size=(64, 100))
    with pytest.raises(ValueError, match=r'size is \[64, 100\] there, 64 was asked for'):
        write_shapes(tmp_path, train=1, val=6, size=64)


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
        (dict(size=(63, 90)), r'size has to be at least 64, got size=\(63, 90\)'),
        (dict(size=(90, 64)), r'or the least and the greatest, got size=\(90, 64\)'),
        (dict(size=(64, 90, 99)), r'or the least and the greatest, got size=\(64, 90, 99\)'),
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
