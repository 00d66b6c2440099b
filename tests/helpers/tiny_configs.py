"""Configs of a detector and a segmentor so small that a test can train them, on Shapes."""

from helpers.shipped_configs import CONFIGS, ROOT
from helpers.tiny import SIZES

TOOLS = ROOT / 'tools'
SEGMENTOR = f"""
_base_ = '{CONFIGS}/segmentation/semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py'
model = dict(
    data_preprocessor=dict(size=(64, 64)),
    backbone=dict(_delete_=True, type='mminline.InLinePVT', arch={SIZES}),
    neck=dict(in_channels={list(SIZES['embed_dims'])}, out_channels=8),
    decode_head=dict(in_channels=[8, 8, 8, 8], channels=8, num_classes=7),
)
steps = ('LoadImageFromFile', 'LoadAnnotations', 'PackSegInputs')
data = dict(
    type='BaseSegDataset',
    data_root='shapes',
    data_prefix=dict(img_path='images/train', seg_map_path='semantic/train'),
    metainfo=dict(classes=list('abcdefg'), palette=[[0, 0, 0]] * 7),
    img_suffix='.png',
    pipeline=[dict(type=step) for step in steps],
)
train_dataloader, val_dataloader, test_dataloader = (
    dict(num_workers=0, persistent_workers=False, dataset=dict(data, _delete_=True))
    for _ in range(3)
)
train_cfg = dict(max_iters=4, val_interval=4)
default_hooks = dict(checkpoint=dict(interval=2), logger=dict(interval=1))
"""

DETECTOR = f"""
_base_ = '{CONFIGS}/detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py'
model = dict(
    backbone=dict(_delete_=True, type='mminline.InLinePVT', arch={SIZES}),
    neck=dict(in_channels={list(SIZES['embed_dims'])}, out_channels=8),
    rpn_head=dict(in_channels=8, feat_channels=8),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=8),
        bbox_head=dict(in_channels=8, fc_out_channels=16, num_classes=6),
        mask_roi_extractor=dict(out_channels=8),
        mask_head=dict(num_convs=1, in_channels=8, conv_out_channels=8, num_classes=6),
    ),
    train_cfg=dict(rpn_proposal=dict(max_per_img=20), rcnn=dict(sampler=dict(num=16))),
    test_cfg=dict(rpn=dict(max_per_img=20), rcnn=dict(score_thr=0.0, max_per_img=5)),
)
steps = (
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 64), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs'),
)
data = dict(
    type='CocoDataset',
    data_root='shapes',
    ann_file='annotations/instances_train.json',
    data_prefix=dict(img='images/train'),
    metainfo=dict(classes=('circle', 'square', 'triangle', 'star', 'ring', 'cross')),
    pipeline=list(steps),
)
train_dataloader, val_dataloader, test_dataloader = (
    dict(num_workers=0, persistent_workers=False, dataset=dict(data, _delete_=True))
    for _ in range(3)
)
val_evaluator = dict(ann_file='shapes/annotations/instances_train.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=2, val_interval=2)
default_hooks = dict(checkpoint=dict(interval=1), logger=dict(interval=1))
"""
