# A backbone of this project in a segmentor that the paper did not try. SegFormer's recipe.
_base_ = 'mmseg::segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mminline.InLinePVT',
        arch='tiny',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='inline://pvt-tiny'),
    ),
    decode_head=dict(in_channels=[64, 128, 320, 512]),
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
