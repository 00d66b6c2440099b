"""Configs of a comparison: one base config with some kind of attention, a budget and folders."""

from pathlib import Path

from mmengine.config import Config

PLAIN = dict(feature_map='relu', injective=False)
# Options of InLinePVT, or how many keys a side mmdet's PVT joins to one in each stage.
KINDS = {
    'inline': {},
    'inline-no-local': dict(local_residual=False),
    'linear': PLAIN,
    'linear-no-local': dict(PLAIN, local_residual=False),
    'softmax': dict(sr_ratios=(1, 1, 1, 1)),
    'softmax-reduced': dict(sr_ratios=(8, 4, 2, 1)),
}


def make_config(
    base: str | Path,
    kind: str,
    seed: int,
    iterations: int,
    root: str | Path,
    size: int,
    work_dir: str | Path,
) -> Config:
    """Read a config with another attention, another budget and other folders.

    Args:
        base: Config file of a segmentor with the InLine-PVT backbone, trained on Shapes.
        kind: One of ``KINDS``.
        seed: Of weights and the order of scenes.
        iterations: Budget.
        root: Folder of the data.
        size: Side of its scenes.
        work_dir: Folder of the run.
    """
    config = Config.fromfile(base)
    _use_attention(config, kind)
    _use_data(config, root, size)
    _use_budget(config, iterations)
    # Of the same name it would be the one of the run before, and write to its folder.
    config.visualizer.name = f'{kind}-seed_{seed}'
    config.update(
        randomness=dict(seed=seed),
        work_dir=str(work_dir),
        experiment_name=f'{kind}-seed_{seed}',
        log_level='ERROR',
    )
    return config


def _use_attention(config: Config, kind: str) -> None:
    backbone = config.model.backbone
    if 'sr_ratios' in KINDS[kind]:
        arch = backbone.arch
        config.model.backbone = dict(
            type='mmdet.PyramidVisionTransformer',
            pretrain_img_size=backbone.pretrain_size,
            embed_dims=arch.embed_dims[0],  # times num_heads in each stage
            num_heads=arch.num_heads,
            num_layers=arch.depths,
            mlp_ratios=arch.mlp_ratios,
            drop_path_rate=backbone.get('drop_path_rate', 0.0),
            **KINDS[kind],
        )
    else:
        backbone.update(KINDS[kind])


def _use_data(config: Config, root: str | Path, size: int) -> None:
    """Take scenes of another folder, as large as they are; a position embedding for each cell."""
    config.model.data_preprocessor.size = (size, size)
    backbone = config.model.backbone
    backbone['pretrain_size' if 'pretrain_size' in backbone else 'pretrain_img_size'] = size
    for split in ('train', 'val', 'test'):
        loader = config[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(root)
        for step in loader.dataset.pipeline:
            if step.type == 'Resize':
                step.scale = (size, size)


def _use_budget(config: Config, iterations: int) -> None:
    """Train for fewer or more iterations; one checkpoint and one evaluation, at the end."""
    # The shape of the schedule stays: warm-up, then a cosine down to the end.
    warm_up, cosine = config.param_scheduler
    warm_up.end = cosine.begin = max(1, warm_up.end * iterations // cosine.end)
    cosine.end = iterations
    config.train_cfg.update(max_iters=iterations, val_interval=iterations)
    config.default_hooks.checkpoint.update(
        interval=iterations, filename_tmpl='model.pth', save_optimizer=False
    )
