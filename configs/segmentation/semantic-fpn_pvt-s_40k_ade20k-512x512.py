_base_ = 'semantic-fpn_pvt-t_40k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        num_layers=[3, 4, 6, 3],
        init_cfg=dict(
            checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth'
        ),
    )
)
