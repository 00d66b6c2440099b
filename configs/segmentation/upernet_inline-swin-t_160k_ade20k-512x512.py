_base_ = [
    'mmseg::_base_/models/upernet_swin.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/swin_160k.py',
    'mmseg::_base_/default_runtime.py',
]

model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(
        _delete_=True,
        type='mminline.InLineSwin',
        arch='tiny',
        drop_path_rate=0.3,
        init_cfg=dict(type='Pretrained', checkpoint='inline://swin-tiny'),
    ),
    decode_head=dict(in_channels=[96, 192, 384, 768], num_classes=150),
    auxiliary_head=dict(in_channels=384, num_classes=150),
)
