_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mminline.InLineSwin',
        arch='tiny',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='inline://swin-tiny'),
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
