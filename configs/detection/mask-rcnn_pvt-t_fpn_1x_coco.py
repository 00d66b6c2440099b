_base_ = 'mask-rcnn_inline-pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='PyramidVisionTransformer',
        num_layers=[2, 2, 2, 2],
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth',
        ),
    )
)
