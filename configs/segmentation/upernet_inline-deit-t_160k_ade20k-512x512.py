_base_ = [
    'mmseg::_base_/models/upernet_vit-b16_ln_mln.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/vit_160k.py',
    'mmseg::_base_/default_runtime.py',
]

model = dict(
    data_preprocessor=dict(size=(512, 512)),
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type='mminline.InLineDeiT',
        arch='tiny',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='inline://deit-tiny'),
    ),
    neck=dict(in_channels=[192, 192, 192, 192], out_channels=192),
    decode_head=dict(in_channels=[192, 192, 192, 192], num_classes=150),
    auxiliary_head=dict(in_channels=192, num_classes=150),
)
