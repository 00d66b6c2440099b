# Shapes as tools/make_shapes.py draws it; scenes are small enough to be used as they are.
data_root = 'data/shapes/'
metainfo = dict(
    classes=('background', 'circle', 'square', 'triangle', 'star', 'ring', 'cross'),
    palette=[
        (40, 40, 40),
        (230, 159, 0),
        (86, 180, 233),
        (0, 158, 115),
        (240, 228, 66),
        (213, 94, 0),
        (204, 121, 167),
    ],
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    # Keeps the size of Shapes, and brings other images near what was trained on.
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
data = dict(type='BaseSegDataset', data_root=data_root, metainfo=metainfo, img_suffix='.png')
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='semantic/train'),
        pipeline=train_pipeline,
        **data,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='semantic/val'),
        pipeline=test_pipeline,
        **data,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
