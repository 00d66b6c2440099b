"""``tools/infer.py --full-size``: images at their own resolution, at once and in parts."""

import json
import resource
import signal
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.large_models import random_image
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import Predictor, init_model
from mminline.large import predictor

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def models(tmp_path_factory) -> Path:
    """Configs and untrained weights of both kinds."""
    folder = tmp_path_factory.mktemp('models')
    for kind, text in dict(detector=DETECTOR, segmentor=SEGMENTOR).items():
        (folder / f'{kind}.py').write_text(text)
        config = Config.fromfile(folder / f'{kind}.py')
        config.model.backbone.init_cfg = None
        init_default_scope(config.default_scope)
        torch.manual_seed(0)
        torch.save({'state_dict': MODELS.build(config.model).state_dict()}, folder / f'{kind}.pth')
    return folder


@pytest.fixture
def infer(models, run, tmp_path, monkeypatch, capsys):
    """Run the tool on an image of 200 x 130 px; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    mmcv.imwrite(random_image(130, 200), 'photo.png')

    def run_infer(kind: str, *arguments: object) -> tuple[int, str]:
        code = 0
        try:
            run('infer.py', models / f'{kind}.py', models / f'{kind}.pth', *arguments)
        except SystemExit as exit:
            code = exit.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run_infer


def test_class_maps_in_parts_and_at_once_are_the_same(infer):
    for large in ('on', 'off'):
        assert infer('segmentor', 'photo.png', '--full-size', '--large', large, '--out', large)[
            0
        ] in (0, False)
    code, printed = infer('segmentor', 'photo.png', '--full-size', '--out', 'map.npy')

    at_once = mmcv.imread('off/predictions/photo.png.png', 'unchanged')
    assert at_once.shape == (130, 200)
    assert len(np.unique(at_once)) > 1
    np.testing.assert_array_equal(mmcv.imread('on/predictions/photo.png.png', 'unchanged'), at_once)
    np.testing.assert_array_equal(np.load('map.npy'), at_once)
    assert (code, 'map.npy' in printed, 'neck and head: 1 of 1' in printed) == (0, True, True)
    assert mmcv.imread('on/pictures/photo.png').shape == (130, 200, 3)


def test_instances_in_parts_and_at_once_are_the_same(infer):
    found = {}
    for large in ('on', 'off'):
        infer('detector', 'photo.png', '--full-size', '--large', large, '--out', large)
        infer('detector', 'photo.png', '--full-size', '--large', large, '--out', large,
              '--score-thr', 0)  # fmt: skip
        text = Path(large, 'predictions', 'photo.png.json').read_text()
        found[large] = json.loads(text)
        assert mmcv.imread(f'{large}/pictures/photo.png').shape == (130, 200, 3)

    assert (found['on']['height'], found['on']['width']) == (130, 200)
    assert len(found['on']['instances']) == len(found['off']['instances']) == 5
    for ours, whole in zip(found['on']['instances'], found['off']['instances'], strict=True):
        assert ours['label'] == whole['label']
        assert ours['bbox'] == pytest.approx(whole['bbox'], abs=1e-3)
        assert ours['segmentation']['size'] == whole['segmentation']['size']


def test_what_does_not_fit_is_computed_in_parts(infer, monkeypatch):
    monkeypatch.setattr(predictor, 'free_bytes', lambda _: 1000)

    assert 'computed in parts' in infer('segmentor', 'photo.png', '--full-size')[1]

    monkeypatch.setattr(predictor, 'free_bytes', lambda _: 1 << 40)
    assert 'computed in parts' not in infer('segmentor', 'photo.png', '--full-size')[1]


@pytest.mark.parametrize(
    ('kind', 'arguments', 'message'),
    [
        ('segmentor', ['photo.png', '--large', 'on'], 'add --full-size'),
        ('detector', ['photo.png', '--full-size', '--out', 'a.png'], 'is for class maps'),
        ('segmentor', ['.', '--full-size', '--out', 'a.png'], 'is for a single image'),
        ('segmentor', ['cut.png', '--full-size', '--out', 'a.png'], 'cut off or no image'),
        (
            'segmentor',
            ['photo.png', '--full-size', '--out', 'a.png', '--large', 'off'],
            'is written in parts',
        ),
        ('segmentor', ['photo.png', '--full-size', '--out', 'maps.npy'], 'maps.npy is a folder'),
        ('segmentor', ['photo.png', '--out', 'cut.png/results'], 'cannot be written to'),
    ],
)
def test_a_bad_argument_is_named(infer, kind, arguments, message):
    Path('cut.png').write_bytes(Path('photo.png').read_bytes()[:100])
    Path('maps.npy').mkdir()

    assert message in infer(kind, *arguments)[0]
    assert not Path('a.png').exists()


def test_an_array_has_a_picture_too(infer):
    np.save('photo.npy', random_image(130, 200))

    assert not infer('segmentor', 'photo.npy', '--full-size')[0]

    assert mmcv.imread('results/pictures/photo.npy.png').shape == (130, 200, 3)
    assert mmcv.imread('results/predictions/photo.npy.png', 'unchanged').shape == (130, 200)


def test_frames_whose_pictures_are_reduced_stay_in_the_video(infer, monkeypatch):
    monkeypatch.setattr(predictor, 'PICTURE_SIDE', 64)
    writer = cv2.VideoWriter('clip.avi', cv2.VideoWriter_fourcc(*'MJPG'), 5, (128, 96))
    for _ in range(2):
        writer.write(random_image(96, 128))
    writer.release()

    assert not infer('segmentor', 'clip.avi', '--full-size', '--large', 'on')[0]

    video = mmcv.VideoReader('results/pictures/clip.avi.mp4')
    assert (len(video), video.resolution) == (2, (128, 96))


def test_a_file_for_a_class_map_needs_the_full_size(infer):
    code, _ = infer('segmentor', 'photo.png', '--out', 'map.png')

    assert code == '--out map.png is a file for a class map, which needs --full-size.'
    assert not Path('map.png').exists()


def test_a_full_disk_is_named_and_leaves_no_class_map(infer):
    # Enough for the config, which is copied when it is read, and too little for the class map.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        code, _ = infer('segmentor', 'photo.png', '--full-size', '--out', 'map.npy')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert 'map.npy cannot be written: File too large' in code
    assert not list(Path().glob('*map.npy*'))


def test_a_tiff_that_is_cut_off_is_named(infer):
    tifffile = pytest.importorskip('tifffile')
    tifffile.imwrite('photo.tif', random_image(130, 200), photometric='rgb', tile=(64, 64))
    Path('photo.tif').write_bytes(Path('photo.tif').read_bytes()[:50_000])

    code, _ = infer('segmentor', 'photo.tif', '--full-size', '--out', 'map.npy')

    assert 'photo.tif cannot be read: it is cut off' in code
    assert not Path('map.npy').exists()


def test_the_model_sees_images_whole_during_a_prediction_only(models):
    model = init_model(models / 'segmentor.py', models / 'segmentor.pth', 'cpu', fast=False)
    window = dict(mode='slide', crop_size=(32, 32), stride=(32, 32))
    model.test_cfg.update(window)
    before = dict(model.data_preprocessor.test_cfg or {})
    image = random_image(70, 90)

    at_once, in_parts = (
        predictor.FullSizePredictor(model, large=large).predict(image).pred_sem_seg.data
        for large in ('off', 'on')
    )

    np.testing.assert_array_equal(at_once, in_parts)
    assert {name: model.test_cfg[name] for name in window} == window
    assert dict(model.data_preprocessor.test_cfg or {}) == before
    assert (Predictor(model).predict(image).pred_sem_seg.data != at_once).any()
