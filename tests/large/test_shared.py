"""Predictions for images that several processes share: those of one process."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch

from helpers.double_precision import double_precision
from helpers.instances import compare
from helpers.large_models import (
    DETECTORS,
    SEGMENTORS,
    build_detector,
    build_segmentor,
    ordinary_classes,
    ordinary_instances,
    random_image,
)
from helpers.processes import run_processes
from helpers.shared_predictions import (
    FLOAT32_CHANNELS,
    FLOAT32_SIZES,
    SIZES,
    lose_peer,
    predict_shared,
    predict_shared_in_float32,
)
from helpers.shared_tool import OPTIONS, share, write_model
from helpers.tiny_configs import DETECTOR, SEGMENTOR

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> list[dict]:
    kinds = [*SEGMENTORS, *DETECTORS]
    return run_processes(tmp_path_factory.mktemp('shared'), 3, predict_shared, kinds)


@pytest.mark.parametrize('kind', SEGMENTORS)
@pytest.mark.parametrize('size', SIZES, ids=str)
def test_no_pixel_differs_from_the_ordinary_way(kind, size, results):
    expected = ordinary_classes(build_segmentor(kind), random_image(*size))

    assert len(np.unique(expected)) > 1
    for count in (2, 3):
        classes, *others = (result[kind, size, count] for result in results[:count])
        assert (classes != expected).sum() == 0
        assert others == [None] * (count - 1)


def test_no_pixel_differs_from_one_process_in_float32(tmp_path):
    results = run_processes(tmp_path, 3, predict_shared_in_float32, list(SEGMENTORS))

    for kind in SEGMENTORS:
        model = build_segmentor(kind, channels=FLOAT32_CHANNELS).float()
        for size in FLOAT32_SIZES:
            expected = ordinary_classes(model, random_image(*size))
            assert len(np.unique(expected)) > 1
            for count in (2, 3):
                np.testing.assert_array_equal(results[0][kind, size, count], expected)


@pytest.mark.parametrize('kind', DETECTORS)
@pytest.mark.parametrize('size', SIZES, ids=str)
def test_instances_are_those_of_the_ordinary_way(kind, size, results):
    with double_precision():
        expected = ordinary_instances(build_detector(kind).double(), random_image(*size))

    for count in (2, 3):
        found, *others = (result[kind, size, count] for result in results[:count])
        assert found.bboxes.dtype == torch.float64
        assert compare(found, expected, tolerance=1e-9) < 1e-3
        assert others == [None] * (count - 1)


@pytest.mark.parametrize('kind', ['semantic_fpn', 'mask_rcnn'])
def test_a_killed_peer_ends_the_prediction_and_leaves_no_file(kind, tmp_path):
    meet, out = tmp_path / 'meet', tmp_path / 'out'
    for each in (meet, out):
        each.mkdir()
    (message, seconds), nothing = run_processes(meet, 2, lose_peer, kind, str(out))

    assert nothing is None
    assert 'one of the 2 processes that share an image has ended' in message
    assert seconds < 60
    assert [path.name for path in out.iterdir()] == ['end']


def share_by_tool(text: str, outs: tuple[str, str], run: Callable, *options: str) -> str:
    """Run the tool alone and in two processes; return what the first of these printed."""
    mmcv.imwrite(random_image(130, 200), 'photo.png')
    arguments = [*write_model(text), 'photo.png', *options]
    with contextlib.suppress(SystemExit):
        run('infer.py', *arguments, *OPTIONS, '--out', outs[0])
    result = share(*arguments, '--out', outs[1])
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_tool_shares_an_image(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('OMP_NUM_THREADS', '1')

    printed = share_by_tool(SEGMENTOR, ('alone.npy', 'shared.npy'), run)

    assert printed.splitlines() == ['shared.npy']
    assert np.array_equal(np.load('shared.npy'), np.load('alone.npy'))


def test_the_tool_shares_an_image_for_a_detector(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('OMP_NUM_THREADS', '1')

    printed = share_by_tool(DETECTOR, ('alone', 'shared'), run, '--score-thr', '0')

    assert '1 of 1 done, 0 skipped: shared' in printed
    alone, shared = (
        json.loads(Path(out, 'predictions', 'photo.png.json').read_text())['instances']
        for out in ('alone', 'shared')
    )
    assert len(alone) == len(shared) == 5
    for one, other in zip(alone, shared, strict=True):
        assert one['label'] == other['label']
        assert other['bbox'] == pytest.approx(one['bbox'], abs=1e-3)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['photo.png', '--full-size'], 'add --full-size --large on'),
        (['.', '--full-size', '--large', 'on'], 'for a single image'),
    ],
)
def test_what_cannot_be_shared_is_refused(arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('RANK', '0')
    mmcv.imwrite(random_image(64, 64), 'photo.png')
    (tmp_path / 'small.py').write_text(SEGMENTOR)
    torch.save({}, 'small.pth')

    with pytest.raises(SystemExit, match=message):
        run('infer.py', 'small.py', 'small.pth', *arguments, '--launcher', 'pytorch')
