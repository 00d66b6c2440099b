"""Every config as it is shipped: it builds, learns and predicts."""

import re

import numpy as np
import pytest
import torch
from mmcv.cnn.bricks import DropPath
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from torch import nn

from helpers.shipped_configs import DETECTORS, PUBLISHED, SEGMENTORS, build, load

pytestmark = pytest.mark.slow

BASELINES = [stem for stem in PUBLISHED if re.search('_(pvt|swin|deit)-', stem)]


def without_drop_path(model: nn.Module) -> nn.Module:
    """Drop path would leave blocks without a gradient at random."""
    for module in model.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0
    return model


def show_few_regions(model: nn.Module) -> None:
    """Make a detector quick, and make it find something with random weights.

    Hundreds of regions in place of dozens show nothing more, and random weights are never sure.
    """
    if hasattr(model, 'roi_head'):
        samplers = model.roi_head.bbox_sampler
        for sampler in samplers if isinstance(samplers, list) else [samplers]:
            sampler.num = 32
        model.rpn_head.test_cfg.max_per_img = 50
        model.roi_head.test_cfg.score_thr = 0.0
    else:
        model.bbox_head.test_cfg.score_thr = 0.0


def detection_batch(side: int) -> dict:
    sample = DetDataSample(
        metainfo=dict(
            img_shape=(side, side), ori_shape=(side, side), pad_shape=(side, side),
            batch_input_shape=(side, side), scale_factor=(1.0, 1.0), img_id=0,
        )
    )  # fmt: skip
    mask = np.zeros((2, side, side), np.uint8)
    mask[0, 4:40, 8:48] = mask[1, 20:60, 30:60] = 1
    sample.gt_instances = InstanceData(
        bboxes=torch.tensor([[8.0, 4.0, 48.0, 40.0], [30.0, 20.0, 60.0, 60.0]]),
        labels=torch.tensor([0, 1]),
        masks=BitmapMasks(mask, side, side),
    )
    image = torch.randint(256, (3, side, side), dtype=torch.uint8)
    return dict(inputs=[image], data_samples=[sample])


def segmentation_batch(side: int) -> dict:
    sample = SegDataSample(
        metainfo=dict(img_shape=(side, side), ori_shape=(side, side), pad_shape=(side, side))
    )
    sample.gt_sem_seg = PixelData(data=torch.randint(2, (1, side, side)))
    # Two images: batch norm behind global pooling cannot learn from a single value.
    images = torch.randint(256, (2, 3, side, side), dtype=torch.uint8)
    return dict(inputs=list(images), data_samples=[sample, sample.clone()])


def learn_and_predict(model: nn.Module, batch: dict) -> list:
    """Do a loss step, look at the gradients of the backbone, then predict."""
    model.train()
    data = model.data_preprocessor(batch, training=True)
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.backbone.named_parameters()}

    assert all(value.isfinite() for value in logged.values())
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert [name for name, gradient in gradients.items() if not gradient.any()] == []
    model.eval()
    with torch.no_grad():
        return model.test_step(batch)


@pytest.mark.parametrize('stem', DETECTORS)
def test_a_detector_builds_learns_and_predicts(stem):
    # DINO chooses 900 of its queries among the cells of the image.
    side = 256 if stem.startswith('dino') else 64
    model = without_drop_path(build(stem))
    show_few_regions(model)

    found = learn_and_predict(model, detection_batch(side))[0].pred_instances

    assert len(found) > 0
    assert found.bboxes.isfinite().all()
    assert (found.bboxes >= 0).all()
    assert (found.bboxes <= side).all()
    if 'mask-rcnn' in stem:
        assert found.masks.shape == (len(found), side, side)


@pytest.mark.parametrize('stem', SEGMENTORS)
def test_a_segmentor_builds_learns_and_predicts(stem):
    model = without_drop_path(build(stem))
    model.data_preprocessor.size = (64, 64)  # padding to the size of training takes time only

    labels = learn_and_predict(model, segmentation_batch(64))[0].pred_sem_seg.data

    assert labels.shape == (1, 64, 64)
    assert labels.min() >= 0
    assert labels.max() < model.decode_head.num_classes


def forget_channels(model: dict) -> None:
    """Take out of a model what follows from the channels of its backbone."""
    del model['neck']['in_channels'], model['neck']['out_channels']
    for head in ('decode_head', 'auxiliary_head'):
        del model[head]['in_channels']


@pytest.mark.parametrize('stem', BASELINES)
def test_a_baseline_differs_from_its_inline_config_in_the_backbone_only(stem):
    inline = re.sub('_(pvt|swin|deit)-', r'_inline-\1-', stem)
    sides = []
    for config in (load(stem).to_dict(), load(inline).to_dict()):
        backbone = config['model'].pop('backbone')
        config.pop('checkpoint', None)
        if '_deit-' in stem:  # InLine-DeiT-S and -B are narrower than DeiT-S and -B
            forget_channels(config['model'])
        sides.append((config, backbone['drop_path_rate']))

    assert sides[0] == sides[1]


@pytest.mark.parametrize('stem', PUBLISHED)
def test_a_config_starts_from_published_weights_of_its_own_size(stem):
    backbone = load(stem).model.backbone
    size = stem.split('_')[1].split('-')[-1]
    word = dict(t='tiny', s='small', m='medium', l='large', b='base')[size]

    assert word in backbone.init_cfg.checkpoint
    if '_inline-' in stem:
        family = backbone.type.removeprefix('mminline.InLine').lower()
        assert backbone.arch == word
        assert backbone.init_cfg.checkpoint == f'inline://{family}-{word}'
