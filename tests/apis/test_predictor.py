"""``Predictor``: predictions as data, pictures and files."""

import copy
import functools
import json

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, DefaultScope
from torch import nn

from helpers.tiny import randomize
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import Predictor, init_model

TEXTS = dict(detector=DETECTOR, segmentor=SEGMENTOR)


@functools.cache
def build(kind: str) -> nn.Module:
    return randomize(init_model(Config.fromstring(TEXTS[kind], '.py'), device='cpu'))


@pytest.fixture(params=sorted(TEXTS))
def model(request) -> nn.Module:
    return build(request.param)


@pytest.fixture
def image(shapes) -> np.ndarray:
    return mmcv.imread(shapes / 'images' / 'train' / '000001.png')


def results(sample) -> list[torch.Tensor]:
    if 'pred_instances' in sample:
        # A sample keeps its fields in a set, whose order varies between runs.
        return [value for _, value in sorted(sample.pred_instances.to_dict().items())]
    return [sample.pred_sem_seg.data]


def test_an_image_in_memory_gives_what_the_test_data_gives(model, shapes, image, monkeypatch):
    monkeypatch.chdir(shapes.parent)
    with DefaultScope.overwrite_default_scope(model.cfg.default_scope):
        dataset = DATASETS.build(copy.deepcopy(model.cfg.test_dataloader.dataset))
    with torch.no_grad():
        (expected,) = model.test_step(pseudo_collate([dataset[1]]))

    found = Predictor(model, score_thr=0.0).predict(image)

    assert results(found)[0].numel() > 0
    for ours, theirs in zip(results(found), results(expected), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_objects_below_the_score_are_left_out(image):
    scores = Predictor(build('detector'), score_thr=0.0).predict(image).pred_instances.scores
    middle = float(scores.median())

    kept = Predictor(build('detector'), score_thr=middle).predict(image).pred_instances.scores

    assert 0 < len(kept) < len(scores)
    assert kept.tolist() == [score for score in scores.tolist() if score >= middle]


def test_models_of_both_kinds_take_turns(image):
    predictors = [Predictor(build(kind), score_thr=0.0) for kind in sorted(TEXTS)]
    for _ in range(2):
        for predictor in predictors:
            picture = predictor.draw(image, predictor.predict(image))
            assert picture.shape == image.shape
            assert (picture != image).any()


def test_predictions_are_saved_beside_each_other(model, image, tmp_path):
    predictor = Predictor(model, score_thr=0.0)
    sample = predictor.predict(image)

    predictor.save(sample, str(tmp_path / 'new' / 'photo.jpg'))

    (path,) = (tmp_path / 'new').iterdir()
    if 'pred_instances' in sample:
        assert path.name == 'photo.jpg.json'
        saved = json.loads(path.read_text())
        scores = sample.pred_instances.scores.tolist()
        assert [instance['score'] for instance in saved['instances']] == pytest.approx(scores)
    else:
        assert path.name == 'photo.jpg.png'
        saved = mmcv.imread(path, 'unchanged')
        np.testing.assert_array_equal(saved, sample.pred_sem_seg.data[0].numpy())


def test_a_data_set_in_a_list_is_known(model, image):
    alone = results(Predictor(model, score_thr=0.0).predict(image))
    listed = copy.copy(model)
    listed.cfg = copy.deepcopy(model.cfg)
    dataset = dict(type='ConcatDataset', datasets=[listed.cfg.test_dataloader.dataset])
    listed.cfg.test_dataloader.dataset = dataset
    for ours, theirs in zip(
        results(Predictor(listed, score_thr=0.0).predict(image)), alone, strict=True
    ):
        assert torch.equal(ours, theirs)


def test_no_visualizer_is_needed(model, image):
    bare = copy.copy(model)
    bare.cfg = copy.deepcopy(model.cfg)
    bare.cfg.visualizer = None
    predictors = [Predictor(each, score_thr=0.0) for each in (model, bare)]
    sample = predictors[0].predict(image)

    pictures = [predictor.draw(image, sample) for predictor in predictors]

    np.testing.assert_array_equal(*pictures)


def test_a_picture_shows_classes_in_the_colours_of_the_data_set(image):
    model = copy.copy(build('segmentor'))
    model.dataset_meta = dict(classes=[''] * 7, palette=[[30 * i, 0, 0] for i in range(7)])
    predictor = Predictor(model)
    sample = predictor.predict(image)

    picture = predictor.draw(image, sample)

    class_map = sample.pred_sem_seg.data[0].numpy()
    assert len(np.unique(class_map)) > 1
    blended = np.round((image[..., 2] + 30.0 * class_map) / 2)
    opaque = 30 * class_map
    red = picture[..., 2]
    assert ((np.abs(red - blended) <= 1) | (red == opaque)).all()
