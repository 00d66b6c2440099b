# Narrow, with few regions: detectors of the usual size take seconds for each step on a CPU.
_base_ = [
    'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py',
    '../_base_/datasets/shapes_instance.py',
    '../_base_/schedules/shapes_400.py',
    '../_base_/runtimes/shapes_detection.py',
]

model = dict(
    backbone=dict(
        _delete_=True,
        type='mminline.InLineSwin',
        arch=dict(
            embed_dims=(32, 64, 128, 256),
            depths=(2, 2, 2, 2),
            inline_depths=(2, 2, 2, 0),
            num_heads=(1, 2, 4, 8),
            mlp_ratios=(4, 4, 4, 4),
        ),
    ),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64),
    rpn_head=dict(in_channels=64, feat_channels=64, anchor_generator=dict(scales=[4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64, roi_layer=dict(sampling_ratio=1)),
        bbox_head=[
            dict(
                type='Shared2FCBBoxHead',
                in_channels=64,
                fc_out_channels=256,
                roi_feat_size=7,
                num_classes=6,
                bbox_coder=dict(
                    type='DeltaXYWHBBoxCoder',
                    target_means=[0.0, 0.0, 0.0, 0.0],
                    target_stds=stds,
                ),
                reg_class_agnostic=True,
                loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
                loss_bbox=dict(type='SmoothL1Loss', beta=1.0, loss_weight=1.0),
            )
            for stds in (
                [0.1, 0.1, 0.2, 0.2],
                [0.05, 0.05, 0.1, 0.1],
                [0.033, 0.033, 0.067, 0.067],
            )
        ],
        mask_roi_extractor=dict(out_channels=64),
        mask_head=dict(num_convs=2, in_channels=64, conv_out_channels=64, num_classes=6),
    ),
    train_cfg=dict(
        rpn_proposal=dict(nms_pre=200, max_per_img=100),
        rcnn=[
            dict(
                assigner=dict(
                    type='MaxIoUAssigner',
                    pos_iou_thr=overlap,
                    neg_iou_thr=overlap,
                    min_pos_iou=overlap,
                    match_low_quality=False,
                    ignore_iof_thr=-1,
                ),
                sampler=dict(
                    type='RandomSampler',
                    num=32,
                    pos_fraction=0.25,
                    neg_pos_ub=-1,
                    add_gt_as_proposals=True,
                ),
                mask_size=28,
                pos_weight=-1,
                debug=False,
            )
            for overlap in (0.5, 0.6, 0.7)
        ],
    ),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=100), rcnn=dict(max_per_img=20)),
)
