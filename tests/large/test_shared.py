"""Class maps of images that several processes share: those of one process, pixel by pixel."""

import subprocess
import sys

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.large_models import SEGMENTORS, build_segmentor, ordinary_classes, random_image
from helpers.processes import run_processes
from helpers.shared_predictions import SIZES, predict_shared, write_and_lose_peer
from helpers.tiny_configs import DETECTOR, SEGMENTOR, TOOLS

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> list[dict]:
    return run_processes(tmp_path_factory.mktemp('shared'), 3, predict_shared, list(SEGMENTORS))


@pytest.mark.parametrize('kind', SEGMENTORS)
@pytest.mark.parametrize('size', SIZES, ids=str)
def test_no_pixel_differs_from_the_ordinary_way(kind, size, results):
    expected = ordinary_classes(build_segmentor(kind), random_image(*size))

    assert len(np.unique(expected)) > 1
    for count in (2, 3):
        classes, *others = (result[kind, size, count] for result in results[:count])
        assert (classes != expected).sum() == 0
        assert others == [None] * (count - 1)


def test_a_killed_peer_ends_the_prediction_and_leaves_no_file(tmp_path):
    (tmp_path / 'meet').mkdir()
    message, nothing = run_processes(tmp_path / 'meet', 2, write_and_lose_peer, str(tmp_path))

    assert nothing is None
    assert 'one of the 2 processes that share an image has ended' in message
    assert [path.name for path in tmp_path.iterdir()] == ['meet']


def test_the_tool_shares_an_image(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    mmcv.imwrite(random_image(130, 200), 'photo.png')
    (tmp_path / 'small.py').write_text(SEGMENTOR)
    config = Config.fromfile('small.py')
    config.model.backbone.init_cfg = None
    init_default_scope(config.default_scope)
    torch.save({'state_dict': MODELS.build(config.model).state_dict()}, 'small.pth')
    arguments = ['small.py', 'small.pth', 'photo.png', '--full-size', '--large', 'on']

    run('infer.py', *arguments, '--out', 'alone.npy')
    command = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node=2', '--standalone']
    command += [TOOLS / 'infer.py', *arguments, '--launcher', 'pytorch', '--out', 'shared.npy']
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ['shared.npy']
    assert np.array_equal(np.load('shared.npy'), np.load('alone.npy'))


@pytest.mark.parametrize(
    ('text', 'arguments', 'message'),
    [
        (SEGMENTOR, ['photo.png', '--full-size'], 'add --full-size --large on'),
        (DETECTOR, ['photo.png', '--full-size', '--large', 'on'], 'for segmentors'),
        (SEGMENTOR, ['.', '--full-size', '--large', 'on'], 'for a single image'),
    ],
)
def test_what_cannot_be_shared_is_refused(text, arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('RANK', '0')
    mmcv.imwrite(random_image(64, 64), 'photo.png')
    (tmp_path / 'small.py').write_text(text)
    torch.save({}, 'small.pth')

    with pytest.raises(SystemExit, match=message):
        run('infer.py', 'small.py', 'small.pth', *arguments, '--launcher', 'pytorch')
