"""Images and videos through a predictor: what is written, what is skipped."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from mminline.inference import infer_images, infer_video, is_video


class Inverter:
    """Stands for a predictor: draws the negative, saves a word, refuses small images."""

    def predict(self, image_HWC):
        if len(image_HWC) < 32:
            raise ValueError('too small')
        return 'found'

    def draw(self, image_HWC, sample):
        assert sample == 'found'
        return 255 - image_HWC

    def save(self, sample, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f'{path.name}.txt').write_text(sample)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)


def test_each_image_is_done_or_named(tmp_path, image, capsys):
    paths = [tmp_path / name for name in ('a.png', 'small.png', 'text.jpg')]
    cv2.imwrite(str(paths[0]), image)
    cv2.imwrite(str(paths[1]), image[:16])
    paths[2].write_text('no image')

    assert infer_images(paths, Inverter(), tmp_path / 'out') == (1, 3)

    printed = capsys.readouterr()
    assert 'Skipped small.png: too small' in printed.err
    assert 'Skipped text.jpg: it is empty, cut off or no image' in printed.err
    assert 'Seconds for each image: read ' in printed.out
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / 'out/pictures/a.png')), 255 - image)
    files = [path.relative_to(tmp_path / 'out') for path in tmp_path.glob('out/*/*')]
    assert sorted(map(str, files)) == ['pictures/a.png', 'predictions/a.png.txt']


def test_frames_of_a_video_keep_their_size(tmp_path, image):
    class Halver(Inverter):
        def draw(self, image_HWC, sample):
            return np.full_like(image_HWC[::2, ::2], 200)

    path = tmp_path / 'clip.avi'
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'MJPG'), 5, (64, 48))
    for _ in range(3):
        writer.write(image)
    writer.release()

    assert infer_video(path, Halver(), tmp_path / 'out') == (3, 3)

    video = cv2.VideoCapture(str(tmp_path / 'out/pictures/clip.avi.mp4'))
    found, frame = video.read()
    assert found
    assert frame.shape == image.shape
    assert abs(int(frame.mean()) - 200) < 10
    names = sorted(path.name for path in (tmp_path / 'out/predictions/clip.avi').iterdir())
    assert names == ['000000.txt', '000001.txt', '000002.txt']


def test_what_is_no_video_is_named(tmp_path):
    assert is_video(Path('a.MP4'))
    assert not is_video(Path('a.png'))
    (tmp_path / 'bad.mp4').write_text('no video')

    with pytest.raises(ValueError, match='bad.mp4 cannot be read as a video'):
        infer_video(tmp_path / 'bad.mp4', Inverter(), tmp_path)
