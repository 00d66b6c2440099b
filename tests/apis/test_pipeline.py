"""The test pipeline of a config for single images."""

import copy
import functools

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config

from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import build_test_pipeline, get_test_dataset


@functools.cache
def read(text: str) -> Config:
    return Config.fromstring(text, '.py')


@pytest.fixture(params=[DETECTOR, SEGMENTOR], ids=['detector', 'segmentor'])
def config(request) -> Config:
    return copy.deepcopy(read(request.param))


def test_a_file_and_its_pixels_give_the_same(config, shapes):
    path = shapes / 'images' / 'train' / '000000.png'
    prepare = build_test_pipeline(config)
    from_file, from_pixels = prepare(path), prepare(mmcv.imread(path))
    assert torch.equal(from_file['inputs'], from_pixels['inputs'])
    for name in ('ori_shape', 'img_shape'):
        sizes = [packed['data_samples'].metainfo[name] for packed in (from_file, from_pixels)]
        assert sizes[0] == sizes[1]


def test_the_first_of_several_data_sets_has_the_pipeline(config, shapes):
    image = mmcv.imread(shapes / 'images' / 'train' / '000000.png')
    alone = build_test_pipeline(config)(image)['inputs']
    datasets = [config.test_dataloader.dataset, dict(pipeline=[])]
    config.test_dataloader.dataset = dict(
        type='RepeatDataset', dataset=dict(type='ConcatDataset', datasets=datasets)
    )
    assert torch.equal(build_test_pipeline(config)(image)['inputs'], alone)


@pytest.mark.parametrize('loader', [None, dict(dataset=dict(type='ConcatDataset', datasets=[]))])
def test_a_config_without_a_pipeline_is_refused(config, loader):
    config.test_dataloader = loader
    with pytest.raises(ValueError, match='a test_dataloader whose dataset has a pipeline'):
        build_test_pipeline(config)


@pytest.mark.parametrize('shape', [(1, 500), (4000, 7)])
def test_an_image_of_which_resizing_leaves_nothing_is_refused(config, shape, tmp_path):
    resize = dict(type='Resize', scale=(64, 64), keep_ratio=True)
    get_test_dataset(config).pipeline.insert(1, resize)
    prepare = build_test_pipeline(config)
    image = np.zeros((*shape, 3), np.uint8)
    path = tmp_path / 'strip.png'
    mmcv.imwrite(image, str(path))

    with pytest.raises(ValueError, match=f'{shape[1]} x {shape[0]} px cannot .* less than 1 px'):
        prepare(image)
    with pytest.raises(ValueError, match='strip.png cannot .* less than 1 px'):
        prepare(path)


@pytest.mark.parametrize('shape', [(64, 64), (0, 64, 3), (1, 64, 64, 3)])
def test_what_is_no_image_is_refused(config, shape):
    with pytest.raises(ValueError, match='has to have the shape .height, width, channels.'):
        build_test_pipeline(config)(np.zeros(shape, np.uint8))
