"""``tools/infer.py``: images, folders with broken files, videos, and what it refuses."""

import json
import re
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from pycocotools import mask

from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.datasets import CLASSES
from mminline.visualization import draw_classes

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
    """Run the tool in a folder of its own; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run_infer(kind: str, *arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as exit:
            run('infer.py', models / f'{kind}.py', models / f'{kind}.pth', *arguments)
        captured = capsys.readouterr()
        if isinstance(exit.value.code, str):
            return 1, exit.value.code
        return int(exit.value.code), captured.out + captured.err

    return run_infer


def write_photos(shapes: Path) -> None:
    """Two images that differ in their suffix alone, and files that are no images."""
    image = mmcv.imread(shapes / 'images' / 'train' / '000000.png')
    for suffix in ('.png', '.jpg'):
        mmcv.imwrite(image[:48], f'photos/photo{suffix}')
    Path('photos/cut.png').write_bytes(Path('photos/photo.png').read_bytes()[:-200])
    Path('photos/empty.jpg').touch()
    Path('photos/notes.txt').write_text('not an image, and not meant to be one')


def written(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


@pytest.mark.parametrize(('kind', 'suffix'), [('detector', '.json'), ('segmentor', '.png')])
def test_broken_images_of_a_folder_are_named_and_the_others_done(infer, shapes, kind, suffix):
    write_photos(shapes)

    code, printed = infer(kind, 'photos', '--out', 'out')

    assert code == 1
    assert '2 of 4 done, 2 skipped: out' in printed
    for name in ('cut.png', 'empty.jpg'):
        assert f'Skipped {name}: it is empty, cut off or no image' in printed
    assert 'notes.txt' not in printed
    assert written('out/pictures') == {'photo.png', 'photo.jpg'}
    assert written('out/predictions') == {f'photo.png{suffix}', f'photo.jpg{suffix}'}
    assert mmcv.imread('out/pictures/photo.png').shape == (48, 64, 3)


def test_objects_are_written_in_the_words_of_coco(infer, shapes):
    image = shapes / 'images' / 'train' / '000001.png'
    code, printed = infer('detector', image, '--score-thr', 0)

    assert code == 0
    assert '1 of 1 done, 0 skipped: results' in printed
    seconds = re.search('Seconds for each image: (.+)', printed).group(1)
    assert re.sub(r' [\d.e-]+', '', seconds) == 'read, predict, draw, write'
    found = json.loads(Path('results/predictions/000001.png.json').read_text())
    assert (found['height'], found['width'], len(found['instances'])) == (64, 64, 5)
    for instance in found['instances']:
        assert instance['category'] == CLASSES[instance['label']]
        assert 0 <= instance['score'] <= 1
        left, top, width, height = instance['bbox']
        assert 0 <= left <= left + width <= 64
        assert 0 <= top <= top + height <= 64
        assert mask.decode(instance['segmentation']).shape == (64, 64)


def test_objects_below_the_score_are_neither_drawn_nor_written(infer, shapes):
    image = shapes / 'images' / 'train' / '000001.png'
    infer('detector', image, '--score-thr', 0)
    assert (mmcv.imread('results/pictures/000001.png') != mmcv.imread(image)).any()

    infer('detector', image, '--score-thr', 1)

    found = json.loads(Path('results/predictions/000001.png.json').read_text())
    assert found['instances'] == []
    np.testing.assert_array_equal(mmcv.imread('results/pictures/000001.png'), mmcv.imread(image))


def test_classes_of_pixels_are_written_and_drawn_alike(infer, shapes, models):
    image = shapes / 'images' / 'train' / '000001.png'
    palette = [[30 * index, 0, 0] for index in range(7)]
    infer(
        'segmentor', image, '--cfg-options',
        f'test_dataloader.dataset.metainfo.palette={palette}',
        f'test_dataloader.dataset.metainfo.classes={[""] * 7}',
    )  # fmt: skip

    indices = mmcv.imread('results/predictions/000001.png.png', 'unchanged')
    assert indices.shape == (64, 64)
    assert len(np.unique(indices)) > 1
    expected = draw_classes(mmcv.imread(image), indices, [''] * 7, palette)
    np.testing.assert_array_equal(mmcv.imread('results/pictures/000001.png'), expected)


def test_a_video_gives_a_video_of_the_same_frames(infer, shapes):
    writer = cv2.VideoWriter('clip.avi', cv2.VideoWriter_fourcc(*'MJPG'), 5, (64, 48))
    for number in range(3):
        image = mmcv.imread(shapes / 'images' / 'train' / f'{number:06d}.png')
        writer.write(np.ascontiguousarray(image[:48]))
    writer.release()

    code, printed = infer('segmentor', 'clip.avi')

    assert code == 0
    assert '3 of 3 done' in printed
    video = mmcv.VideoReader('results/pictures/clip.avi.mp4')
    assert (len(video), video.fps, video.resolution) == (3, 5, (64, 48))
    assert written('results/predictions/clip.avi') == {f'{number:06d}.png' for number in range(3)}


def test_a_model_may_refuse_an_image_and_go_on(infer, shapes):
    write_photos(shapes)
    mmcv.imwrite(np.zeros((8, 8, 3), np.uint8), 'photos/small.png')

    code, printed = infer('segmentor', 'photos')

    assert '2 of 5 done, 3 skipped' in printed
    assert 'Skipped small.png: ' in printed


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['nowhere.jpg'], 'There is no file or folder nowhere.jpg'),
        (['empty'], 'There is no image in empty'),
        (['bad.mp4'], 'bad.mp4 cannot be read as a video'),
        (['photo.png', '--device', 'warp:9'], '--device warp:9 cannot be used: '),
        (['photo.png', '--score-thr', '0.5'], '--score-thr is for detectors'),
        (['photo.png', '--out', 'photo.png'], '--out has to be a folder'),
    ],
)
def test_a_bad_argument_is_named(infer, arguments, message):
    Path('empty').mkdir()
    Path('bad.mp4').write_bytes(b'no video' * 100)
    mmcv.imwrite(np.zeros((64, 64, 3), np.uint8), 'photo.png')

    assert message in infer('segmentor', *arguments)[1]


def test_no_result_at_all_is_a_failure_too(infer):
    Path('text.jpg').write_text('no image')

    assert infer('segmentor', 'text.jpg')[0] == 1


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ({'backbone.norm.weight': torch.ones(1)}, 'wrong.pth has to hold the whole model'),
        ({'epoch': 3}, 'a checkpoint has to hold its weights as tensors'),
        (None, 'a checkpoint has to be a whole file of torch.save'),
    ],
)
def test_a_wrong_checkpoint_is_refused(models, run, tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    mmcv.imwrite(np.zeros((64, 64, 3), np.uint8), 'photo.png')
    torch.save(content, 'wrong.pth')
    if content is None:
        Path('wrong.pth').write_text('nothing')

    with pytest.raises(SystemExit, match=message):
        run('infer.py', models / 'segmentor.py', 'wrong.pth', 'photo.png')


def test_a_head_for_other_classes_is_refused(models, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mmcv.imwrite(np.zeros((64, 64, 3), np.uint8), 'photo.png')

    with pytest.raises(SystemExit, match=r'decode_head.conv_seg.weight \(\(3, 8, 1, 1\) is wanted'):
        run(
            'infer.py', models / 'segmentor.py', models / 'segmentor.pth', 'photo.png',
            '--cfg-options', 'model.decode_head.num_classes=3',
        )  # fmt: skip
