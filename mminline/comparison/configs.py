"""Configs of a comparison: one base config with some kind of attention, a budget and folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..apis.config import drop_pretrained
from ..engine.config import load_run_config
from .budget import use_budget
from .kinds import use_attention


def make_config(
    base: str | Path,
    kind: str,
    seed: int,
    iterations: int | None,
    root: str | Path | None,
    size: int | None,
    work_dir: str | Path,
    evaluations: int = 4,
    cfg_options: Mapping[str, Any] | None = None,
) -> Config:
    """Read a config with another attention, another budget and other folders.

    Args:
        base: Config file of a detector or segmentor with a backbone of this project.
        kind: See ``kinds.parse_kind``.
        seed: Of weights and the order of images.
        iterations: Budget; None for the config's own.
        root: Folder of Shapes; None for the data of the config.
        size: Side of its scenes.
        work_dir: Folder of the run.
        evaluations: How often the score is measured, under a budget.
        cfg_options: Settings to change, by dotted name.
    """
    config = load_run_config(base, cfg_options, work_dir=str(work_dir))
    # There are no trained weights for most kinds: all start alike.
    config.model = drop_pretrained(config.model)
    use_attention(config, kind)
    if root is not None:
        _use_shapes(config, root, size)
    if iterations is not None:
        use_budget(config, iterations, evaluations)
    # Of the same name it would be the one of the run before, and write to its folder.
    name = f'{kind}-seed_{seed}'
    config.visualizer = dict(config.get('visualizer') or dict(type='Visualizer'), name=name)
    config.update(
        randomness=dict(seed=seed), experiment_name=name, log_level='ERROR', load_from=None
    )
    return config


def _use_shapes(config: Config, root: str | Path, size: int) -> None:
    """Take scenes of another folder, as large as they are; a position embedding for each cell."""
    config.model.data_preprocessor.size = (size, size)
    backbone = config.model.backbone
    if backbone.type.endswith('PyramidVisionTransformer'):
        backbone.pretrain_img_size = size
    elif not backbone.type.endswith('InLineSwin'):  # which has no position embedding
        backbone.pretrain_size = size
    for split in ('train', 'val', 'test'):
        loader = config[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(root)
        for step in loader.dataset.pipeline:
            if step.type == 'Resize':
                step.scale = (size, size)
