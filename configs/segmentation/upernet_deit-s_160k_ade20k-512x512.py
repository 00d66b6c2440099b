_base_ = 'upernet_deit-t_160k_ade20k-512x512.py'

checkpoint = 'pretrain/deit_small_patch16_224-cd65a155.pth'
model = dict(
    backbone=dict(embed_dims=384, num_heads=6, init_cfg=dict(checkpoint=checkpoint)),
    neck=dict(in_channels=[384, 384, 384, 384], out_channels=384),
    decode_head=dict(in_channels=[384, 384, 384, 384]),
    auxiliary_head=dict(in_channels=384),
)
