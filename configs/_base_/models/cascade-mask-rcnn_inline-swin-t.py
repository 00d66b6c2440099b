# Cascade Mask R-CNN as Swin was measured with: four convolutions in each box head, a box for
# each class, GIoU loss on decoded boxes.
_base_ = 'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mminline.InLineSwin',
        arch='tiny',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='inline://swin-tiny'),
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
    roi_head=dict(
        bbox_head=[
            dict(
                type='ConvFCBBoxHead',
                num_shared_convs=4,
                num_shared_fcs=1,
                in_channels=256,
                conv_out_channels=256,
                fc_out_channels=1024,
                roi_feat_size=7,
                num_classes=80,
                norm_cfg=dict(type='SyncBN', requires_grad=True),
                bbox_coder=dict(
                    type='DeltaXYWHBBoxCoder',
                    target_means=[0.0, 0.0, 0.0, 0.0],
                    target_stds=stds,
                ),
                reg_class_agnostic=False,
                reg_decoded_bbox=True,
                loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
                loss_bbox=dict(type='GIoULoss', loss_weight=10.0),
            )
            for stds in (
                [0.1, 0.1, 0.2, 0.2],
                [0.05, 0.05, 0.1, 0.1],
                [0.033, 0.033, 0.067, 0.067],
            )
        ]
    ),
)
