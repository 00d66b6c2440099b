"""Files of predictions, and that they are written without torch and OpenMMLab."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco

from mminline.predictions import encode_mask, save_classes, save_instances

WITHOUT_TORCH = """
import sys
for name in ('torch', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'pycocotools'):
    sys.modules[name] = None  # as if it were not installed
import numpy as np
import mminline
from mminline.predictions import save_classes, save_instances
from mminline.visualization import draw_classes, draw_instances

assert mminline.__version__
image, mask = np.zeros((40, 40, 3), np.uint8), np.ones((1, 40, 40), bool)
objects = [[2, 2, 30, 30]], [0], [0.5], mask
draw_instances(image, *objects, ['cat'])
draw_classes(image, mask[0], ['cat', 'dog'])
save_instances('objects.json', (40, 40), *objects, ['cat'])
save_classes('classes.png', mask[0], 2)
"""


def test_objects_are_read_back(tmp_path):
    masks = np.random.default_rng(0).random((2, 30, 50)) < 0.3
    boxes = np.array([[1, 2, 11, 22], [0.5, 0, 50, 30]], np.float32)
    labels, scores = np.array([1, 0]), np.array([0.25, 1.0], np.float32)
    path = tmp_path / 'new' / 'photo.jpg.json'

    save_instances(path, (30, 50), boxes, labels, scores, masks, ['cat', 'dog'])

    assert [file.name for file in path.parent.iterdir()] == [path.name]
    saved = json.loads(path.read_text())
    first, second = saved['instances']
    assert (saved['height'], saved['width']) == (30, 50)
    assert first['bbox'] == [1, 2, 10, 20]
    assert (first['label'], first['category'], first['score']) == (1, 'dog', 0.25)
    assert second['category'] == 'cat'
    for instance, mask in zip((first, second), masks, strict=True):
        np.testing.assert_array_equal(coco.decode(instance['segmentation']), mask)


def test_run_lengths_are_written_as_they_are(tmp_path):
    masks = np.random.default_rng(0).random((1, 30, 50)) < 0.3
    for name, given in dict(pixels=masks, runs=[encode_mask(masks[0])]).items():
        save_instances(tmp_path / name, (30, 50), [[0, 0, 1, 1]], [0], [0.5], given, ['cat'])

    assert (tmp_path / 'pixels').read_text() == (tmp_path / 'runs').read_text()


def test_boxes_alone_have_no_segmentation(tmp_path):
    save_instances(tmp_path / 'a.json', (9, 9), [[0, 0, 1, 1]], [0], [0.5], None, ['cat'])

    (instance,) = json.loads((tmp_path / 'a.json').read_text())['instances']
    assert 'segmentation' not in instance


@pytest.mark.parametrize(('num_classes', 'dtype'), [(256, np.uint8), (257, np.uint16)])
def test_classes_are_read_back(tmp_path, num_classes, dtype):
    class_map = np.random.default_rng(0).integers(0, num_classes, (20, 30))
    class_map[0, 0] = num_classes - 1

    save_classes(tmp_path / 'photo.png', class_map, num_classes)

    saved = cv2.imread(str(tmp_path / 'photo.png'), cv2.IMREAD_UNCHANGED)
    assert saved.dtype == dtype
    np.testing.assert_array_equal(saved, class_map)


def test_pictures_and_files_need_neither_torch_nor_openmmlab(tmp_path):
    subprocess.run([sys.executable, '-c', WITHOUT_TORCH], cwd=tmp_path, check=True)

    assert {path.name for path in tmp_path.iterdir()} == {'objects.json', 'classes.png'}
