# A backbone of this project in a detector that the paper did not try. DINO's recipe as it is.
_base_ = 'mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mminline.InLineSwin',
        arch='tiny',
        out_indices=(1, 2, 3),
        drop_path_rate=0.2,
        init_cfg=dict(type='Pretrained', checkpoint='inline://swin-tiny'),
    ),
    neck=dict(in_channels=[192, 384, 768]),
)
