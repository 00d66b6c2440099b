_base_ = 'retinanet_inline-pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='small',
        init_cfg=dict(checkpoint='inline://pvt-small'),
    )
)
