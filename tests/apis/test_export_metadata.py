"""What an exported file says about its input."""

import json

import pytest
import torch
from mmengine.config import Config

from helpers import tiny_detectors
from helpers.tiny_exports import FPN_HEAD, PVT, segmentor
from mminline.apis import init_model
from mminline.apis.export.detector import DetectorModel
from mminline.apis.export.image_model import ImageModel
from mminline.apis.export.metadata import describe
from mminline.apis.export.pixels import Pixels


def build_segmentor(**preprocessor):
    settings = segmentor('InLinePVT', PVT, FPN_HEAD, neck=True)
    settings['data_preprocessor'].update(preprocessor)
    return init_model(Config(dict(default_scope='mmseg', model=settings)), device='cpu')


@pytest.mark.parametrize(
    ('normalize', 'dynamic', 'preprocessor', 'words'),
    [
        (True, True, {}, 'RGB values from 0 to 255, float32, (batch, 3, height, width)'),
        (True, False, {}, 'RGB values from 0 to 255, float32, (1, 3, 64, 96)'),
        (False, False, {}, 'RGB values, normalised as in the config, float32, (1, 3, 64, 96)'),
        (
            False,
            False,
            dict(bgr_to_rgb=False),
            'BGR values, normalised as in the config, float32, (1, 3, 64, 96)',
        ),
    ],
)
def test_a_segmentor_says_what_its_input_is(normalize, dynamic, preprocessor, words):
    model = build_segmentor(**preprocessor)
    module = ImageModel(model, 'segmentor', normalize)

    metadata = describe(model, module, 'segmentor', (64, 96), dynamic)

    assert json.loads(metadata['mminline.input']) == words
    assert json.loads(metadata['mminline.normalized']) is normalize
    assert json.loads(metadata['mminline.smallest_side']) == 8  # of two stages


@pytest.mark.parametrize(('divisor', 'smallest'), [(32, 1), (1, 8)])
def test_a_detector_takes_one_image_of_any_size_if_it_is_padded(shapes, divisor, smallest):
    config = tiny_detectors.retinanet()
    config.model.data_preprocessor.pad_size_divisor = divisor
    model = tiny_detectors.build(config, shapes)

    metadata = describe(model, DetectorModel(model), 'detector', (64, 96), True)

    words = 'RGB values from 0 to 255, float32, (1, 3, height, width)'
    assert json.loads(metadata['mminline.input']) == words
    assert json.loads(metadata['mminline.smallest_side']) == smallest


@pytest.mark.parametrize('bgr_to_rgb', [False, True])
def test_the_channel_order_is_kept_without_a_mean(bgr_to_rgb):
    model = build_segmentor(mean=None, std=None, bgr_to_rgb=bgr_to_rgb)
    pixels = Pixels(model.data_preprocessor)
    image = torch.randint(256, (1, 3, 8, 8)).float()

    assert pixels.normalize
    wanted = model.data_preprocessor(dict(inputs=[image[0].flip(0)]))['inputs']
    torch.testing.assert_close(pixels(image), wanted[None] if wanted.dim() == 3 else wanted)
