_base_ = [
    'mmseg::_base_/models/fpn_r50.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/pvt_40k.py',
    'mmseg::_base_/default_runtime.py',
]

model = dict(
    pretrained=None,
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(
        _delete_=True,
        type='mminline.InLinePVT',
        arch='tiny',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='inline://pvt-tiny'),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
    decode_head=dict(num_classes=150),
)
