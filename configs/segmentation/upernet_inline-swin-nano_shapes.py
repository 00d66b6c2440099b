_base_ = [
    'mmseg::_base_/models/upernet_swin.py',
    '../_base_/datasets/shapes_semantic.py',
    '../_base_/schedules/shapes_800.py',
    '../_base_/runtimes/shapes_segmentation.py',
]

# Most pixels are background: it would drown for long what tells the figures apart.
class_weight = [0.4, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        _delete_=True,
        type='mminline.InLineSwin',
        arch=dict(
            embed_dims=(32, 64, 128, 256),
            depths=(2, 2, 2, 2),
            inline_depths=(2, 2, 2, 0),
            num_heads=(1, 2, 4, 8),
            mlp_ratios=(4, 4, 4, 4),
        ),
    ),
    decode_head=dict(
        in_channels=[32, 64, 128, 256],
        channels=64,
        dropout_ratio=0.0,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        loss_decode=dict(class_weight=class_weight),
    ),
    auxiliary_head=dict(
        in_channels=128,
        channels=32,
        dropout_ratio=0.0,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        loss_decode=dict(class_weight=class_weight),
    ),
)
