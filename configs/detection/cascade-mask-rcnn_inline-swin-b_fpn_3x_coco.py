_base_ = 'cascade-mask-rcnn_inline-swin-t_fpn_3x_coco.py'

model = dict(
    backbone=dict(
        arch='base',
        drop_path_rate=0.4,
        init_cfg=dict(checkpoint='inline://swin-base'),
    ),
    neck=dict(in_channels=[128, 256, 512, 1024]),
)
