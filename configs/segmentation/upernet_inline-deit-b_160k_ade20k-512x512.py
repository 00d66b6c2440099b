_base_ = 'upernet_inline-deit-t_160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='base',
        init_cfg=dict(checkpoint='inline://deit-base'),
    ),
    neck=dict(in_channels=[384, 384, 384, 384], out_channels=384),
    decode_head=dict(in_channels=[384, 384, 384, 384]),
    auxiliary_head=dict(in_channels=384),
)
