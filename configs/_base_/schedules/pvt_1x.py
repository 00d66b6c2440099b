# PVT on COCO: 12 epochs on 8 GPUs with 2 images each.
_base_ = 'mmdet::_base_/schedules/schedule_1x.py'

optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4))
