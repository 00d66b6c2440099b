_base_ = 'upernet_inline-swin-t_160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='base',
        drop_path_rate=0.5,
        init_cfg=dict(checkpoint='inline://swin-base'),
    ),
    decode_head=dict(in_channels=[128, 256, 512, 1024]),
    auxiliary_head=dict(in_channels=512),
)
