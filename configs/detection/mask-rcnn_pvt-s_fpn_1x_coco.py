_base_ = 'mask-rcnn_pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        num_layers=[3, 4, 6, 3],
        drop_path_rate=0.2,
        init_cfg=dict(
            checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth'
        ),
    )
)
