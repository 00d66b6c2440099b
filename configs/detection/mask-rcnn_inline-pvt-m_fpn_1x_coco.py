_base_ = 'mask-rcnn_inline-pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='medium',
        init_cfg=dict(checkpoint='inline://pvt-medium'),
    )
)
