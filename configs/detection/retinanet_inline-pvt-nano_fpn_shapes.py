# Narrow, with few anchors: detectors of the usual size take seconds for each step on a CPU.
_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    '../_base_/datasets/shapes_instance.py',
    '../_base_/schedules/shapes_1000.py',
    '../_base_/runtimes/shapes_detection.py',
]

model = dict(
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
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64, num_outs=4),
    bbox_head=dict(
        num_classes=6,
        in_channels=64,
        feat_channels=64,
        stacked_convs=2,
        # Figures are 22 to 55 px large.
        anchor_generator=dict(octave_base_scale=2, strides=[8, 16, 32, 64]),
    ),
    test_cfg=dict(nms_pre=200, max_per_img=20),
)
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
