_base_ = 'upernet_inline-deit-nano_shapes.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='VisionTransformer',
        img_size=(128, 128),
        embed_dims=128,
        num_layers=4,
        num_heads=4,
        out_indices=(0, 1, 2, 3),
        norm_cfg=dict(type='LN', eps=1e-6),
    )
)
