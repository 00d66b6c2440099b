_base_ = 'mask-rcnn_inline-swin-t.py'

checkpoint = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth'
model = dict(
    backbone=dict(
        _delete_=True,
        type='SwinTransformer',
        drop_path_rate=0.1,
        convert_weights=True,
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint),
    )
)
