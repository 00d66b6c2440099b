_base_ = 'cascade-mask-rcnn_swin-t_fpn_3x_coco.py'

checkpoint = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_base_patch4_window7_224.pth'
model = dict(
    backbone=dict(
        embed_dims=128,
        depths=[2, 2, 18, 2],
        num_heads=[4, 8, 16, 32],
        drop_path_rate=0.4,
        init_cfg=dict(checkpoint=checkpoint),
    ),
    neck=dict(in_channels=[128, 256, 512, 1024]),
)
