"""The page over HTTP, as a browser or a program asks it."""

import copy
import json
import logging
import re
import tempfile
import time
from pathlib import Path

import cv2
import gradio_client
import httpx
import numpy as np
import pytest
from torch import nn

from helpers.explored import build, explorable, read_layers, write_image
from helpers.server import free_port
from mminline.explore import ExplorableModel, Explorer
from mminline.explore.server import HOST, running_page
from mminline.explore.session import Scene

pytestmark = pytest.mark.slow

SETTINGS = ('1.1', 'mean', 0.05)
MODELS = ('detector', 'segmentor')
PARTS = ('prediction', 'attention', 'residual', 'sum', 'text')


@pytest.fixture(scope='module')
def images(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp('images')
    return [write_image(folder / 'noise.png'), write_image(folder / 'wide.png', 40, 80)]


@pytest.fixture(scope='module')
def bare() -> ExplorableModel:
    """A segmentor without attention."""
    model = copy.deepcopy(build('segmentor'))
    model.extract_feat = lambda inputs: [
        nn.functional.adaptive_avg_pool2d(inputs, 8).mean(1, keepdim=True).expand(-1, 8, -1, -1)
        for _ in range(4)
    ]
    model.backbone = nn.Identity()
    return ExplorableModel('bare', model)


@pytest.fixture(scope='module')
def address(images, bare):
    explorer = Explorer([*map(explorable, MODELS), bare], images)
    with running_page(explorer, free_port()) as address:
        yield address


@pytest.fixture
def client(address, tmp_path):
    return gradio_client.Client(address, verbose=False, download_files=str(tmp_path))


def opened(client, index: int = 0) -> tuple:
    """Open an image; returns x, y and the parts of each model."""
    return looked(client.predict(index, *SETTINGS, api_name='/pick')[1:])


def looked(values: tuple) -> tuple[int, int, dict[str, dict]]:
    x, y, _, *parts, message = values
    assert message == ''
    models = {
        name: dict(zip(PARTS, parts[5 * index : 5 * index + 5], strict=True))
        for index, name in enumerate((*MODELS, 'bare'))
    }
    return x, y, models


def look(client, x: int, y: int, layer: str = '1.1', head: str = 'mean') -> dict[str, dict]:
    return looked(client.predict(layer, head, 0.05, x, y, api_name='/look'))[2]


def pixels(part) -> np.ndarray:
    """Picture of a part that is shown."""
    return cv2.imread(part['value'] if isinstance(part, dict) else part)


def test_an_image_opens_with_predictions_and_weights_of_its_middle(client):
    x, y, models = opened(client)

    assert (x, y) == (32, 24)
    for name in MODELS:
        assert pixels(models[name]['prediction']).shape == (480, 640, 3)
        for part in PARTS[1:4]:
            assert pixels(models[name][part]).shape[1] == 640
        assert 'query in row 6, column 8' in models[name]['text']


def test_another_image_can_be_picked_or_uploaded(client, images):
    assert opened(client, 1)[:2] == (40, 20)
    file = gradio_client.handle_file(str(images[0]))
    assert looked(client.predict(file, *SETTINGS, api_name='/open')[1:])[:2] == (32, 24)


def test_another_point_layer_and_head_show_other_weights(client):
    opened(client)
    first = look(client, 8, 8)['segmentor']
    for other in (look(client, 50, 30), look(client, 8, 8, '2.1'), look(client, 8, 8, '2.1', '2')):
        other = other['segmentor']
        assert (pixels(other['attention']) != pixels(first['attention'])).any()
        first = other


def test_a_click_is_a_pixel_of_the_picture(images):
    from mminline.explore.handlers import Handlers

    class Click:
        index = [105, 205]  # of a picture ten times as large as the image

    explorer = Explorer([explorable('segmentor')], images)
    x, y, *_ = Handlers(explorer, Path(), None).click(explorer.open(images[0]), *SETTINGS, Click())
    assert (x, y) == (10, 20)


def test_the_threshold_leaves_objects_out(client):
    opened(client)
    many, few = (
        pixels(client.predict(score, 5, 5, api_name='/redraw')[0]) for score in (0.05, 1.0)
    )
    assert (many != few).any()


def test_an_empty_field_is_the_first_row_or_column(client):
    opened(client)
    empty, zero = (pixels(client.predict(0.05, x, 5, api_name='/redraw')[0]) for x in (None, 0))
    assert (empty == zero).all()


def test_answers_come_in_the_order_of_the_questions(client, monkeypatch):
    """A slow answer must not overwrite a later one, also not one to another kind of question."""
    opened(client)
    draw, running, most = Scene.draw_predictions, [], []

    def slow_draw(self, score_thr, point):
        running.append(point)
        most.append(len(running))
        time.sleep(0.2)
        running.remove(point)
        return draw(self, score_thr, point)

    monkeypatch.setattr(Scene, 'draw_predictions', slow_draw)
    jobs = [
        client.submit('1.1', 'mean', 0.05, 1, 1, api_name='/look'),
        client.submit(0.05, 2, 2, api_name='/redraw'),
        client.submit(0, *SETTINGS, api_name='/pick'),
    ]
    for job in jobs:
        job.result()

    assert most == [1, 1, 1]


def test_locality_and_confusion_follow(client):
    opened(client)
    detector, segmentor, bare = client.predict('1.1', api_name='/measure')

    assert re.search(r'locality [\d.]+ %, [\d.]+ % with the local residual', segmentor)
    assert re.search(r'confusion [\d.]+ %.* centred [\d.]+ %', detector)
    assert bare == ''


def test_saved_numbers_are_the_weights_of_the_layer(client, images):
    opened(client)
    files, message = client.predict('2.1', '1', 41, 22, api_name='/save')

    figure, arrays, numbers = map(Path, files)
    assert message == ''
    assert [path.suffix for path in (figure, arrays, numbers)] == ['.png', '.npz', '.json']
    assert cv2.imread(str(figure)).shape[1] > 500
    saved = np.load(arrays)
    attention = read_layers(build('segmentor'), cv2.imread(str(images[0])))['2.1']
    expected = attention.weights()[0, :, 2 * 8 + 5]
    np.testing.assert_allclose(
        saved['segmentor.attention'].reshape(2, -1), expected.detach(), rtol=1e-5, atol=1e-7
    )
    described = json.loads(numbers.read_text())
    assert described['models']['segmentor']['cell'] == [2, 5]
    assert described['models']['segmentor']['locality']['attention'] > 0
    assert 'without any' in described['models']['bare']['error']


def test_a_model_without_attention_says_so_and_predicts(client):
    models = opened(client)[2]

    assert 'got a EncoderDecoder without any' in models['bare']['text']
    assert pixels(models['bare']['prediction']).shape == (480, 640, 3)
    assert models['bare']['attention']['visible'] is False


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('broken.png', b'\x89PNG\r\n\x1a\nbroken', 'broken.png cannot be read'),
        ('empty.jpg', b'', 'empty.jpg cannot be read'),
        ('notes.txt', b'not an image', 'notes.txt cannot be read'),
        ('tiny.png', 'tiny', r'at least 32 x 32 px, tiny.png has 64 x 20'),
    ],
)
def test_a_bad_upload_is_explained_and_the_server_lives_on(
    client, tmp_path, name, content, message
):
    path = tmp_path / name
    if content == 'tiny':
        write_image(path, 20, 64)
    else:
        path.write_bytes(content)
    answer = client.predict(gradio_client.handle_file(str(path)), *SETTINGS, api_name='/open')

    assert re.search(message, answer[-1])
    assert opened(client)[:2] == (32, 24)


@pytest.mark.parametrize(
    ('values', 'name', 'message'),
    [
        (('1.1', 'mean', 0.05, 5, 5), '/look', 'Pick or upload an image first'),
        (('1.1', 'mean', 5, 5), '/save', 'Pick or upload an image first'),
        ((7, *SETTINGS), '/pick', 'images 0 to 1, got 7'),
    ],
)
def test_a_question_without_an_answer_is_explained(client, values, name, message):
    assert re.search(message, client.predict(*values, api_name=name)[-1])


def test_nothing_of_the_page_comes_from_elsewhere(address):
    assert address.startswith(f'http://{HOST}:')
    reply = httpx.get(address)

    assert "default-src 'self'" in reply.headers['content-security-policy']
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', reply.text)
    assert loaded
    assert not [url for url in loaded if url.startswith(('http:', 'https:', '//'))]
    config = httpx.get(f'{address}config').json()
    assert config['analytics_enabled'] is False
    assert config['space_id'] is None


def test_files_are_gone_with_the_page_and_a_bad_port_is_named(images, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    explorer, port = Explorer([explorable('segmentor')], images), free_port()
    log = logging.FileHandler(tmp_path / 'training.log')
    with running_page(explorer, port) as address:
        assert log.stream is not None  # or the next message of mmengine would fail
        client = gradio_client.Client(address, verbose=False)
        client.predict(0, *SETTINGS, api_name='/pick')
        assert 'locality' in client.predict('1.1', api_name='/measure')  # of the only model
        assert [path for path in tmp_path.rglob('*.jpeg') if 'mminline-explore-' in str(path)]
        for bad in (port, 70000):  # in use, and more than ports go to
            with (
                pytest.raises(ValueError, match=f'--port {bad} cannot be used'),
                running_page(explorer, bad),
            ):
                pass
    assert not list(tmp_path.glob('mminline-explore-*'))
