"""Detectors small enough to export in a test: the shipped ones for Shapes, of two narrow stages."""

from pathlib import Path

import torch
from mmengine.config import Config
from torch import nn

from helpers import tiny
from helpers.shipped_configs import load
from helpers.tiny_exports import DIMS, PVT, SWIN
from mminline.apis import init_model

STRIDES = [4, 8]
WIDTH = 8
TEST = dict(nms_pre=50, max_per_img=20)


def retinanet() -> Config:
    """RetinaNet with InLine-PVT."""
    config = load('retinanet_inline-pvt-nano_fpn_shapes')
    model = config.model
    _shrink(model, PVT)
    model.neck.start_level = 0
    model.bbox_head.update(in_channels=WIDTH, feat_channels=WIDTH, stacked_convs=1)
    model.bbox_head.anchor_generator.strides = [*STRIDES, 16]
    model.test_cfg.update(TEST, max_per_img=10)
    return config


def mask_rcnn() -> Config:
    """Mask R-CNN with InLine-PVT."""
    config = load('mask-rcnn_inline-pvt-nano_fpn_shapes')
    _shrink(config.model, PVT)
    _shrink_regions(config.model)
    config.model.roi_head.bbox_head.update(in_channels=WIDTH, fc_out_channels=16)
    return config


def retinanet_deit() -> Config:
    """RetinaNet with InLine-DeiT, whose maps are of one stride."""
    config = retinanet()
    arch = dict(embed_dims=(8,), depths=(2,), num_heads=(2,), mlp_ratios=(2,))
    config.model.backbone = dict(
        type='mminline.InLineDeiT', arch=arch, out_indices=(0, 1), pretrain_size=64
    )
    config.model.neck.in_channels = [8, 8]
    config.model.bbox_head.anchor_generator.strides = [16, 16, 32]
    return config


def faster_rcnn() -> Config:
    """Faster R-CNN with InLine-PVT: boxes only."""
    config = mask_rcnn()
    config.model.type = 'FasterRCNN'
    for name in ('mask_roi_extractor', 'mask_head'):
        config.model.roi_head.pop(name)
    return config


def cascade() -> Config:
    """Cascade Mask R-CNN with InLine-Swin, softmax windows included."""
    config = load('cascade-mask-rcnn_inline-swin-nano_fpn_shapes')
    _shrink(config.model, SWIN)
    _shrink_regions(config.model)
    for head in config.model.roi_head.bbox_head:
        # Batch norms and boxes of each class, as the detectors for COCO have them.
        head.update(
            type='Shared4Conv1FCBBoxHead',
            in_channels=WIDTH,
            conv_out_channels=WIDTH,
            fc_out_channels=16,
            norm_cfg=dict(type='SyncBN'),
            reg_class_agnostic=False,
        )
    return config


def build(config: Config, shapes: Path) -> nn.Module:
    """Build a detector whose weights all matter, with its data in a folder."""
    for loader in (config.train_dataloader, config.val_dataloader, config.test_dataloader):
        loader.dataset.data_root = str(shapes)
    config.test_evaluator.ann_file = str(shapes / 'annotations' / 'instances_val.json')
    torch.manual_seed(0)
    return tiny.randomize(init_model(config, device='cpu'))


def _shrink(model: dict, arch: dict) -> None:
    model.backbone.update(arch=arch, out_indices=(0, 1))
    model.neck.update(in_channels=list(DIMS), out_channels=WIDTH, num_outs=3)


def _shrink_regions(model: dict) -> None:
    model.rpn_head.update(in_channels=WIDTH, feat_channels=WIDTH)
    model.rpn_head.anchor_generator.strides = [*STRIDES, 16]
    for name in ('bbox_roi_extractor', 'mask_roi_extractor'):
        model.roi_head[name].update(out_channels=WIDTH, featmap_strides=STRIDES)
    model.roi_head.mask_head.update(num_convs=1, in_channels=WIDTH, conv_out_channels=WIDTH)
    model.test_cfg.rpn.update(TEST)
    model.test_cfg.rcnn.max_per_img = 10
