# Segmentors learn the classes of pixels later than detectors those of boxes, at a higher rate.
_base_ = 'shapes_400.py'

optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=50, end=800),
]
train_cfg = dict(max_iters=800, val_interval=200)
