_base_ = 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='medium',
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='inline://pvt-medium'),
    )
)
