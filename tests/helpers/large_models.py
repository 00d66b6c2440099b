"""Small detectors and segmentors for images in parts, and what they predict in the ordinary way."""

import copy
import functools

import numpy as np
import torch
from mmengine.config import Config
from mmengine.structures import InstanceData
from torch import nn

from helpers.shipped_configs import CONFIGS
from helpers.tiny import SIZES, SWIN_SIZES, randomize
from mminline.apis import init_model

SEGMENTORS = dict(
    semantic_fpn='semantic-fpn_inline-pvt-t_40k_ade20k-512x512',
    upernet='upernet_inline-swin-t_160k_ade20k-512x512',
    segformer='segformer_inline-pvt-t_160k_ade20k-512x512',
)
DETECTORS = dict(
    retinanet='retinanet_inline-pvt-t_fpn_1x_coco',
    mask_rcnn='mask-rcnn_inline-pvt-t_fpn_1x_coco',
    cascade='cascade-mask-rcnn_inline-swin-t_fpn_3x_coco',
)
CHANNELS = list(SIZES['embed_dims'])


def random_image(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@functools.cache
def read_config(path: str) -> Config:
    return Config.fromfile(CONFIGS / f'{path}.py')


def build_segmentor(kind: str, channels: int = 8, **head_options) -> nn.Module:
    config = copy.deepcopy(read_config(f'segmentation/{SEGMENTORS[kind]}'))
    model = config.model
    model.pop('auxiliary_head', None)
    model.decode_head.update(in_channels=CHANNELS, channels=channels, num_classes=7, **head_options)
    if 'neck' in model:
        model.neck.update(in_channels=CHANNELS, out_channels=channels)
        model.decode_head.in_channels = [channels] * 4
    model.data_preprocessor.test_cfg = dict(size_divisor=32)
    built = _build(config, kind)
    randomize(built)
    # In float32 rounding would decide pixels whose two best scores are nearly the same.
    return balance(built.double())


@torch.no_grad()
def balance(segmentor: nn.Module) -> nn.Module:
    """Shift the scores so that no class is ahead of the others everywhere."""
    scores = segmentor(torch.randn(1, 3, 128, 128).double(), mode='tensor')
    segmentor.decode_head.conv_seg.bias -= scores.mean(dim=(0, 2, 3))
    return segmentor


def build_detector(kind: str) -> nn.Module:
    config = copy.deepcopy(read_config(f'detection/{DETECTORS[kind]}'))
    model = config.model
    model.neck.update(in_channels=CHANNELS, out_channels=8)
    if kind == 'retinanet':
        model.bbox_head.update(in_channels=8, feat_channels=8, num_classes=6)
        model.test_cfg.update(score_thr=0.0, max_per_img=30, nms_pre=200)
    else:
        _shrink(model)
    built = _build(config, kind)
    randomize(built.backbone)
    torch.manual_seed(1)
    for name, parameter in built.named_parameters():
        if not name.startswith('backbone.'):
            # Scores that differ from each other, so that rounding does not change their order.
            parameter.data += 0.02 * torch.randn(parameter.shape)
            if name.endswith(('_cls.weight', 'conv_logits.weight')):
                parameter.data *= 4
    return built


def _shrink(model: Config) -> None:
    """Make a two-stage detector narrow."""
    model.rpn_head.update(in_channels=8, feat_channels=8)
    heads = model.roi_head
    for head in heads.bbox_head if isinstance(heads.bbox_head, list) else [heads.bbox_head]:
        head.update(in_channels=8, fc_out_channels=16, num_classes=6)
        if 'conv_out_channels' in head:
            head.conv_out_channels = 8
    heads.bbox_roi_extractor.out_channels = heads.mask_roi_extractor.out_channels = 8
    heads.mask_head.update(num_convs=1, in_channels=8, conv_out_channels=8, num_classes=6)
    model.test_cfg.rpn.update(nms_pre=200, max_per_img=100)
    model.test_cfg.rcnn.update(score_thr=0.0, max_per_img=20)


def _build(config: Config, kind: str) -> nn.Module:
    swin = kind in ('upernet', 'cascade')
    config.model.backbone.update(arch=SWIN_SIZES if swin else SIZES, init_cfg=None)
    config.pop('test_dataloader')
    torch.manual_seed(0)
    return init_model(config, device='cpu')


def ordinary_classes(model: nn.Module, image_HWC: np.ndarray) -> np.ndarray:
    """Class of each pixel by ``model.test_step``."""
    from mmseg.structures import SegDataSample

    return _test_step(model, image_HWC, SegDataSample).pred_sem_seg.data[0].numpy()


def ordinary_instances(model: nn.Module, image_HWC: np.ndarray) -> InstanceData:
    """Instances by ``model.test_step``."""
    from mmdet.structures import DetDataSample

    return _test_step(model, image_HWC, DetDataSample).pred_instances


@torch.inference_mode()
def _test_step(model: nn.Module, image_HWC: np.ndarray, kind: type) -> object:
    shape = image_HWC.shape[:2]
    sample = kind(metainfo=dict(ori_shape=shape, img_shape=shape, scale_factor=(1.0, 1.0)))
    pixels = torch.tensor(image_HWC).permute(2, 0, 1)
    (sample,) = model.test_step(dict(inputs=[pixels], data_samples=[sample]))
    return sample
