_base_ = 'upernet_inline-deit-t_160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='small',
        init_cfg=dict(checkpoint='inline://deit-small'),
    ),
    neck=dict(in_channels=[320, 320, 320, 320], out_channels=320),
    decode_head=dict(in_channels=[320, 320, 320, 320]),
    auxiliary_head=dict(in_channels=320),
)
