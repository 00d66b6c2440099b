"""Reports from Python: which models and images they take, what they refuse."""

import copy
import functools
import json
import math
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict

from helpers.tiny import randomize
from helpers.tiny_configs import SEGMENTOR
from mminline.analysis.reports import ModelSource, list_images, report_locality, report_masking
from mminline.analysis.reports.confusion import summarize_confusion
from mminline.analysis.reports.inputs import InputImage, read_images
from mminline.analysis.reports.maps import choose_points
from mminline.analysis.reports.masking import choose_metric
from mminline.apis import init_model


@functools.cache
def read() -> Config:
    return Config.fromstring(SEGMENTOR, '.py')


@pytest.fixture
def config(shapes) -> Config:
    config = copy.deepcopy(read())
    for loader in (config.val_dataloader, config.test_dataloader):
        loader.dataset.data_root = str(shapes)
    return config


@pytest.fixture
def images(shapes) -> list[Path]:
    return list_images(shapes / 'images' / 'val', limit=1)


def test_a_config_in_memory_is_reported_into_a_new_folder(config, images, tmp_path):
    out = tmp_path / 'new' / 'folder'
    report_locality([ModelSource('model', config)], tuple(images), out)

    layers = json.loads((out / 'locality.json').read_text())['layers']
    assert [row['layer'] for row in layers] == ['1.1', '1.2', '2.1', '3.1', '3.2', '4.1']
    assert {path.suffix for path in out.iterdir()} == {'.csv', '.json', '.png'}


def test_the_test_data_may_be_one_of_a_list(config, images, tmp_path):
    dataset = config.test_dataloader.dataset
    config.test_dataloader.dataset = ConfigDict(type='ConcatDataset', datasets=[dataset])

    report_locality([ModelSource('model', config)], images, tmp_path)

    assert (tmp_path / 'locality.png').is_file()


def test_without_a_checkpoint_weights_are_those_that_training_starts_from(config, tmp_path, capsys):
    trained = randomize(init_model(config, device='cpu'))
    torch.save(dict(state_dict=trained.backbone.state_dict()), tmp_path / 'backbone.pth')
    config.model.backbone.init_cfg = dict(
        type='Pretrained', checkpoint=str(tmp_path / 'backbone.pth')
    )

    model = ModelSource('model', config).load()

    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value.cpu(), trained.backbone.state_dict()[name])
    assert 'model: no checkpoint, so the weights are those' in capsys.readouterr().out


def test_masking_needs_validation(config, tmp_path):
    config.val_evaluator = None

    with pytest.raises(ValueError, match='has to have val_dataloader and val_evaluator'):
        report_masking([ModelSource('model', config)], tmp_path)


def test_masking_looks_for_the_data_first(config, tmp_path):
    config.val_dataloader.dataset.data_root = str(tmp_path / 'nowhere')

    with pytest.raises(FileNotFoundError, match='The val data is not there: .*nowhere'):
        report_masking([ModelSource('model', config)], tmp_path)


@pytest.mark.parametrize('metrics', [False, True])
def test_the_evaluator_may_have_a_kind_of_its_own(config, tmp_path, metrics):
    if metrics:
        config.val_evaluator = ConfigDict(type='Evaluator', metrics=[config.val_evaluator])

    report_masking([ModelSource('model', config)], tmp_path, sides=[1], layers=['4.1'])

    settings = json.loads((tmp_path / 'mask.json').read_text())['settings']
    assert settings == dict(metric='mIoU', layers=['4.1'], seed=0)


def test_an_image_that_cannot_be_read_is_named(config, tmp_path):
    (tmp_path / 'broken.png').write_text('no image')
    model = init_model(config, device='cpu')

    with pytest.raises(ValueError, match=r'broken\.png cannot be read as an image'):
        list(read_images(model, list_images(tmp_path)))


def test_images_are_taken_in_order_and_of_any_name(tmp_path):
    for name in ('b.JPG', 'a.png', 'notes.txt', 'c.webp'):
        (tmp_path / name).touch()

    assert [path.name for path in list_images(tmp_path)] == ['a.png', 'b.JPG', 'c.webp']
    assert [path.name for path in list_images(tmp_path, limit=1)] == ['a.png']
    assert list_images(tmp_path / 'notes.txt') == [tmp_path / 'notes.txt']


def test_input_images_are_prepared_as_in_testing(config, images):
    model = init_model(config, device='cpu')
    (image,) = read_images(model, images)

    pixels_CHW = torch.from_numpy(mmcv.imread(str(images[0]))).permute(2, 0, 1)
    sample = dict(inputs=[pixels_CHW])
    torch.testing.assert_close(
        image.input.inputs_1CHW, model.data_preprocessor(sample, False)['inputs'], rtol=0, atol=0
    )
    assert image.input.extent((16, 16)) == (64, 64)
    np.testing.assert_array_equal(image.image_HWC, mmcv.imread(str(images[0]))[..., ::-1])


def test_points_are_spread_evenly_unless_given():
    image = InputImage(Path('a.png'), np.zeros((40, 80, 3)), None)

    assert choose_points(image, None, (1, 2)) == [(20, 20), (60, 20)]
    assert choose_points(image, [(79, 0)], (1, 2)) == [(79, 0)]
    with pytest.raises(ValueError, match=r'inside the image a\.png of 80 x 40 px, got 80 0'):
        choose_points(image, [(80, 0)], (1, 2))


def test_the_metric_is_the_one_asked_for_or_a_usual_one():
    scores = {'aAcc': 1, 'coco/bbox_mAP': 2, 'mIoU': 3}

    assert choose_metric(scores, None) == 'mIoU'
    assert choose_metric(scores, 'aAcc') == 'aAcc'
    assert choose_metric({'other': 0}, None) == 'other'
    with pytest.raises(ValueError, match='metric has to be one of aAcc, .*, got AP'):
        choose_metric(scores, 'AP')


def test_layers_without_different_queries_do_not_count():
    row = dict(curve='model', layer='1.1', image='a.png', exact=True, rate=0.5)
    nothing = dict(row, layer='2.1', rate=math.nan)
    layers, images, means = summarize_confusion([row, nothing])

    assert [layer['rate'] for layer in layers] == [0.5, pytest.approx(math.nan, nan_ok=True)]
    assert images == [dict(curve='model', image='a.png', rate=0.5)]
    assert means == [dict(curve='model', images=1, rate=0.5, low=0.5, high=0.5)]
    with pytest.raises(ValueError, match='no layer has two clearly different queries'):
        summarize_confusion([nothing])
