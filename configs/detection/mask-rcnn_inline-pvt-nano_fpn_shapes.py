# Narrow, with few regions: detectors of the usual size take seconds for each step on a CPU.
_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    '../_base_/datasets/shapes_instance.py',
    '../_base_/schedules/shapes_400.py',
    '../_base_/runtimes/shapes_detection.py',
]

model = dict(
    backbone=dict(
        _delete_=True,
        type='mminline.InLinePVT',
        arch=dict(
            embed_dims=(32, 64, 128, 256),
            depths=(2, 2, 2, 2),
            num_heads=(1, 2, 4, 8),
            mlp_ratios=(4, 4, 4, 4),
        ),
        pretrain_size=128,
    ),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64),
    rpn_head=dict(in_channels=64, feat_channels=64, anchor_generator=dict(scales=[4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64, roi_layer=dict(sampling_ratio=1)),
        bbox_head=dict(in_channels=64, fc_out_channels=256, num_classes=6, reg_class_agnostic=True),
        mask_roi_extractor=dict(out_channels=64),
        mask_head=dict(num_convs=2, in_channels=64, conv_out_channels=64, num_classes=6),
    ),
    train_cfg=dict(
        rpn_proposal=dict(nms_pre=200, max_per_img=100),
        rcnn=dict(sampler=dict(num=64)),
    ),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=100), rcnn=dict(max_per_img=20)),
)
