"""Configs of detectors that differ in their backbone or in padding, for scenes of any size."""

from pathlib import Path

from mmengine.config import Config, ConfigDict

BASE = (
    Path(__file__)
    .resolve()
    .parents[1]
    .joinpath('configs', 'detection', 'mask-rcnn_inline-pvt-nano_fpn_shapes.py')
)


def _inline(backbone: ConfigDict) -> dict:
    return dict(backbone, ignore_padding=True)


def _inline_with_padding(backbone: ConfigDict) -> dict:
    return dict(backbone, ignore_padding=False)


def _softmax(backbone: ConfigDict) -> dict:
    return dict(
        type='PyramidVisionTransformer',
        pretrain_img_size=backbone.pretrain_size,
        embed_dims=backbone.arch.embed_dims[0],  # times num_heads in each stage
        num_heads=backbone.arch.num_heads,
        num_layers=backbone.arch.depths,
        mlp_ratios=backbone.arch.mlp_ratios,
    )


def _resnet(backbone: ConfigDict) -> dict:
    # From random weights: no part is frozen, and batch norms learn.
    return dict(type='ResNet', depth=50, base_channels=16, frozen_stages=-1, norm_eval=False)


IGNORED_BEHIND = 'inline, padding ignored in neck and heads too'
BACKBONES = {
    'inline': _inline,
    IGNORED_BEHIND: _inline,
    'inline, padding computed': _inline_with_padding,
    'softmax PVT (mmdet)': _softmax,
    'ResNet-50, 16 channels': _resnet,
}
# Half of the recipe's: a run takes minutes on one core, and iterations count more than scenes.
TRAINING_BATCH = 4
CHANNELS = {'ResNet-50, 16 channels': [64, 128, 256, 512]}


def make_config(model: str, seed: int, iterations: int, root: Path, work_dir: Path) -> Config:
    """Make the config of a Mask R-CNN that is trained on scenes as large as they are.

    Args:
        model: One of ``BACKBONES``.
        seed: Of weights and the order of scenes.
        iterations: Length of the training.
        root: Folder of Shapes.
        work_dir: Folder of the run.
    """
    config = Config.fromfile(BASE)
    config.model.backbone = BACKBONES[model](config.model.backbone)
    if model == IGNORED_BEHIND:
        config.custom_hooks = [dict(type='mminline.IgnorePaddingHook')]
    config.model.neck.in_channels = CHANNELS.get(model, config.model.neck.in_channels)
    for split in ('train', 'val', 'test'):
        loader = config[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(root)
        for step in loader.dataset.pipeline:
            if step.type == 'Resize':
                # Kept, because the heads of mmdet ask for the scale.
                step.pop('scale')
                step.scale_factor = 1.0
    config.train_dataloader.batch_size = TRAINING_BATCH
    for split in ('val', 'test'):
        config[f'{split}_evaluator'].ann_file = str(root / 'annotations' / 'instances_val.json')
    warm_up, cosine = config.param_scheduler
    warm_up.end = cosine.begin = max(1, warm_up.end * iterations // cosine.end)
    cosine.end = iterations
    # The evaluation is a step of its own.
    config.train_cfg.update(max_iters=iterations, val_interval=iterations + 1)
    config.update(randomness=dict(seed=seed), work_dir=str(work_dir), log_level='WARNING')
    return config
