# Short runs counted in iterations.
_base_ = 'mmdet::_base_/default_runtime.py'

default_hooks = dict(
    logger=dict(interval=10, log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=100, max_keep_ckpts=2),
)
log_processor = dict(by_epoch=False, window_size=10)
