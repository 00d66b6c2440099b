_base_ = 'mask-rcnn_inline-pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='large',
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='inline://pvt-large'),
    )
)
