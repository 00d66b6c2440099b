"""Data that a config looks for in vain is named, with its folder and its source."""

import pytest
from mmengine.config import Config

from helpers.shipped_configs import load
from mminline.engine.data import check_checkpoint, check_data


def make_config(**dataset) -> Config:
    return Config(dict(train_dataloader=dict(dataset=dataset)))


@pytest.mark.parametrize(
    ('stem', 'folder', 'source'),
    [
        ('mask-rcnn_inline-pvt-t_fpn_1x_coco', 'data/coco', 'cocodataset.org'),
        ('upernet_inline-swin-t_160k_ade20k-512x512', 'data/ade', 'ADEChallengeData2016.zip'),
        ('semantic-fpn_inline-pvt-nano_shapes', 'data/shapes', 'make_shapes.py'),
    ],
)
def test_data_of_shipped_configs_is_named_with_its_source(
    tmp_path, monkeypatch, stem, folder, source
):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(
        FileNotFoundError, match=f'The train data is not there: {folder}/.*{source}'
    ):
        check_data(load(stem), 'train', 'val')


def test_data_that_is_there_is_fine(tmp_path):
    (tmp_path / 'images').mkdir()
    check_data(make_config(data_root=str(tmp_path), data_prefix=dict(img='images')), 'train')


@pytest.mark.parametrize(
    'wrap',
    [
        lambda data: dict(type='RepeatDataset', times=2, dataset=data),
        lambda data: dict(type='ConcatDataset', datasets=[dict(data_prefix={}), data]),
    ],
)
def test_a_wrapped_data_set_is_looked_for_too(wrap):
    config = make_config(**wrap(dict(data_root='nowhere', data_prefix=dict(img='images'))))

    with pytest.raises(FileNotFoundError, match='The train data is not there: nowhere/images'):
        check_data(config, 'train')


@pytest.mark.parametrize('listed', [False, True])
def test_annotations_of_the_evaluator_are_looked_for(listed):
    evaluator = dict(type='CocoMetric', ann_file='nowhere.json')
    config = Config(dict(val_evaluator=[evaluator] if listed else evaluator))

    with pytest.raises(FileNotFoundError, match=r'The val data is not there: nowhere\.json'):
        check_data(config, 'train', 'val')


@pytest.mark.parametrize(
    'dataset',
    [
        dict(data_root='s3://bucket', data_prefix=dict(img='images')),
        dict(ann_file='nowhere.json', backend_args=dict(backend='petrel')),
    ],
)
def test_data_elsewhere_is_not_looked_for(dataset):
    check_data(make_config(**dataset), 'train')


def test_a_checkpoint_is_looked_for_unless_it_is_an_address(tmp_path):
    check_checkpoint('https://example.org/model.pth')
    with pytest.raises(FileNotFoundError, match=r'There is no checkpoint .*model\.pth'):
        check_checkpoint(tmp_path / 'model.pth')
