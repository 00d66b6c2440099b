_base_ = 'upernet_deit-t_160k_ade20k-512x512.py'

checkpoint = 'pretrain/deit_base_patch16_224-b5f2ef4d.pth'
model = dict(
    backbone=dict(embed_dims=768, num_heads=12, init_cfg=dict(checkpoint=checkpoint)),
    neck=dict(in_channels=[768, 768, 768, 768], out_channels=768),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
    auxiliary_head=dict(in_channels=768),
)
