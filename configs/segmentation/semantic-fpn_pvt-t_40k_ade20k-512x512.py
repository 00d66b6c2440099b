_base_ = 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmdet.PyramidVisionTransformer',
        num_layers=[2, 2, 2, 2],
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth',
        ),
    )
)
