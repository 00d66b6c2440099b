"""``OnnxModel`` and ``tools/infer_onnx.py`` on files of a few operators."""

import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mminline.deployment import OnnxModel

FOUND = np.array([[0, 0, 9, 9, 0.9], [5, 5, 20, 20, 0.4], [2, 2, 8, 8, 0.1]], np.float32)
METADATA = dict(
    classes=['a', 'b', 'c'],
    palette=None,
    normalized=True,
    resize=dict(scale=[133, 80], keep_ratio=True),
)
IMAGE = helper.make_tensor_value_info('image', TensorProto.FLOAT, [1, 3, 'height', 'width'])


def save(path: Path, nodes: list, outputs: dict, constants: dict, **metadata) -> Path:
    """Write a file with the given operators and metadata."""
    constants = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    outputs = [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, 'graph', [IMAGE], outputs, constants)
    if 'thresholds' in metadata:  # an input with a default
        graph.input.append(helper.make_tensor_value_info('score_threshold', TensorProto.FLOAT, [1]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 20)], ir_version=9)
    for name, value in (METADATA | metadata).items():
        model.metadata_props.add(key=f'mminline.{name}', value=json.dumps(value))
    onnx.save(model, path)
    return path


@pytest.fixture
def detector(tmp_path) -> Path:
    """A file that finds the same boxes in every image, if their scores are high enough."""
    nodes = [
        helper.make_node('Greater', ['scores', 'score_threshold'], ['is_kept']),
        helper.make_node('Compress', ['found', 'is_kept'], ['dets'], axis=0),
        helper.make_node('Compress', ['classes', 'is_kept'], ['labels'], axis=0),
    ]
    constants = dict(
        found=FOUND, scores=FOUND[:, 4], classes=np.arange(3), score_threshold=np.float32([0.3])
    )
    outputs = dict(dets=(TensorProto.FLOAT, ['n', 5]), labels=(TensorProto.INT64, ['n']))
    metadata = dict(what='detector', smallest_side=1, thresholds=dict(score=0.3))
    return save(tmp_path / 'detector.onnx', nodes, outputs, constants, **metadata)


@pytest.fixture
def segmentor(tmp_path) -> Path:
    """A file that gives each pixel the class of its brightest channel."""
    nodes = [
        helper.make_node('ArgMax', ['image'], ['class_map'], axis=1, keepdims=0),
        helper.make_node('Identity', ['image'], ['scores']),
    ]
    outputs = dict(
        class_map=(TensorProto.INT64, [1, 'height', 'width']),
        scores=(TensorProto.FLOAT, [1, 3, 'height', 'width']),
    )
    scores = dict(align_corners=False, threshold=None)
    return save(
        tmp_path / 'segmentor.onnx', nodes, outputs, {}, what='segmentor', scores=scores
    )  # without smallest_side, as earlier versions wrote files


def write_folder(folder: Path, **sizes: tuple[int, int]) -> Path:
    folder.mkdir()
    for name, (width, height) in sizes.items():
        cv2.imwrite(str(folder / f'{name}.png'), np.full((height, width, 3), 99, np.uint8))
    return folder


@pytest.mark.parametrize(
    ('kind', 'reason'),
    [
        ('detector', None),
        ('segmentor', 'at least 32 x 32 px for this file, resized it is 2 x 133'),
    ],
)
def test_odd_images_of_a_folder_are_named_and_the_others_done(
    kind, reason, request, run, tmp_path, capsys
):
    file = request.getfixturevalue(kind)
    photos = write_folder(
        tmp_path / 'photos', good=(80, 60), line=(1, 4000), point=(1, 1), strip=(2000, 30)
    )

    with pytest.raises(SystemExit) as end:
        run('infer_onnx.py', file, photos, '--out', tmp_path / 'out')

    printed = capsys.readouterr()
    assert end.value.code == 1
    skipped = {
        'line.png': 'an image of 1 x 4000 px cannot be resized: its shorter side would be less '
        'than 1 px',
        **({'strip.png': f'an image has to be {reason}'} if reason else {}),
    }
    for name, text in skipped.items():
        assert f'Skipped {name}: {text}' in printed.err
    assert f'{4 - len(skipped)} of 4 done, {len(skipped)} skipped' in printed.out
    pictures = {path.name for path in (tmp_path / 'out' / 'pictures').iterdir()}
    assert pictures == {path.name for path in photos.iterdir()} - skipped.keys()


@pytest.mark.parametrize(('score_thr', 'count'), [(0.95, 0), (0.5, 1), (0.3, 2), (0.05, 3)])
def test_the_threshold_of_the_file_may_be_undercut(detector, score_thr, count):
    found = OnnxModel(detector, score_thr).predict(np.zeros((60, 80, 3), np.uint8))

    assert len(found.boxes) == len(found.labels) == count
    np.testing.assert_array_equal(found.scores, FOUND[:count, 4])


def test_the_threshold_of_the_file_is_used_if_no_other_is_wanted(detector):
    assert len(OnnxModel(detector, None).predict(np.zeros((60, 80, 3), np.uint8)).boxes) == 2
