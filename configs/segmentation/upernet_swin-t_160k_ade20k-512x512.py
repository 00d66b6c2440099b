_base_ = 'upernet_inline-swin-t_160k_ade20k-512x512.py'

checkpoint = 'https://download.openmmlab.com/mmsegmentation/v0.5/pretrain/swin/swin_tiny_patch4_window7_224_20220317-1cdeb081.pth'
model = dict(
    backbone=dict(
        _delete_=True,
        type='SwinTransformer',
        drop_path_rate=0.3,
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint),
    )
)
