# PVT on ADE20K: 40,000 iterations on 8 GPUs with 2 images each.
_base_ = 'mmseg::_base_/schedules/schedule_40k.py'

optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4))
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=0.0, by_epoch=False, begin=0, end=40000)]
auto_scale_lr = dict(enable=False, base_batch_size=16)
