# Plain vision transformers on ADE20K, as mmseg trains them: as Swin, but for what does not decay.
_base_ = 'swin_160k.py'

optim_wrapper = dict(
    paramwise_cfg=dict(
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'class_token': dict(decay_mult=0.0),
            'class_position': dict(decay_mult=0.0),
            # Names of mmseg's VisionTransformer.
            'cls_token': dict(decay_mult=0.0),
            'ln1': dict(decay_mult=0.0),
            'ln2': dict(decay_mult=0.0),
        }
    )
)
