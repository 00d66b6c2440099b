_base_ = 'upernet_inline-swin-t_160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='small',
        init_cfg=dict(checkpoint='inline://swin-small'),
    )
)
