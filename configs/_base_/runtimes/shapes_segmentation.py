# Short runs counted in iterations.
_base_ = 'mmseg::_base_/default_runtime.py'

default_hooks = dict(
    logger=dict(type='LoggerHook', interval=10, log_metric_by_epoch=False),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=100, max_keep_ckpts=2),
    visualization=dict(type='SegVisualizationHook'),
)
log_processor = dict(window_size=10)
