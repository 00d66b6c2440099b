_base_ = 'upernet_inline-deit-t_160k_ade20k-512x512.py'

# The published file in the names of mmseg, which its VisionTransformer needs. To make it:
#   mim run mmsegmentation vit2mmseg https://dl.fbaipublicfiles.com/deit/FILE pretrain/FILE
checkpoint = 'pretrain/deit_tiny_patch16_224-a1311bcf.pth'
model = dict(
    backbone=dict(
        _delete_=True,
        type='VisionTransformer',
        img_size=(512, 512),
        embed_dims=192,
        num_heads=3,
        out_indices=(2, 5, 8, 11),
        drop_path_rate=0.1,
        norm_cfg=dict(type='LN', eps=1e-6),
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint),
    )
)
