_base_ = [
    '../_base_/models/mask-rcnn_swin-t.py',
    '../_base_/datasets/coco_instance_multi-scale.py',
    '../_base_/schedules/swin_3x.py',
    'mmdet::_base_/default_runtime.py',
]
