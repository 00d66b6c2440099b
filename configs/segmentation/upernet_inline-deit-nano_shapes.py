_base_ = [
    'mmseg::_base_/models/upernet_vit-b16_ln_mln.py',
    '../_base_/datasets/shapes_semantic.py',
    '../_base_/schedules/shapes_1000.py',
    '../_base_/runtimes/shapes_segmentation.py',
]

# Most pixels are background: it would drown for long what tells the figures apart.
class_weight = [0.4, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type='mminline.InLineDeiT',
        arch=dict(embed_dims=(128,), depths=(4,), num_heads=(4,), mlp_ratios=(4,)),
        out_indices=(0, 1, 2, 3),
        pretrain_size=128,
    ),
    neck=dict(in_channels=[128, 128, 128, 128], out_channels=64),
    decode_head=dict(
        in_channels=[64, 64, 64, 64],
        channels=64,
        dropout_ratio=0.0,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        loss_decode=dict(class_weight=class_weight),
    ),
    auxiliary_head=dict(
        in_channels=64,
        channels=32,
        dropout_ratio=0.0,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        loss_decode=dict(class_weight=class_weight),
    ),
)
