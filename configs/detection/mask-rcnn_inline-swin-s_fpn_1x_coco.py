_base_ = 'mask-rcnn_inline-swin-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='small',
        init_cfg=dict(checkpoint='inline://swin-small'),
    )
)
