_base_ = [
    'mmseg::_base_/models/fpn_r50.py',
    '../_base_/datasets/shapes_semantic.py',
    '../_base_/schedules/shapes_800.py',
    '../_base_/runtimes/shapes_segmentation.py',
]

model = dict(
    pretrained=None,
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        _delete_=True,
        type='mminline.InLinePVT',
        arch=dict(
            embed_dims=(32, 64, 128, 256),
            depths=(2, 2, 2, 2),
            num_heads=(1, 2, 4, 8),
            mlp_ratios=(4, 4, 4, 4),
        ),
        pretrain_size=128,
    ),
    neck=dict(
        in_channels=[32, 64, 128, 256],
        out_channels=64,
        norm_cfg=dict(type='BN'),
        act_cfg=dict(type='ReLU'),
    ),
    decode_head=dict(
        in_channels=[64, 64, 64, 64],
        channels=64,
        dropout_ratio=0.0,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        # Most pixels are background: it would drown for long what tells the figures apart.
        loss_decode=dict(class_weight=[0.4, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ),
)
