"""What a file has to say about itself, so that it can be run without its config."""

import json
from collections.abc import Sequence
from typing import Any

from torch import nn

from ...version import __version__
from ..config import get_test_dataset
from .detector import DetectorModel
from .image_model import ImageModel
from .tracing import OPEN_DIMS

# Steps of test pipelines that leave pixels where they are.
PLAIN_STEPS = ('LoadImageFromFile', 'LoadAnnotations', 'PackDetInputs', 'PackSegInputs')


def describe(
    model: nn.Module,
    module: ImageModel | DetectorModel,
    what: str,
    shape: tuple[int, int],
    dynamic: bool,
) -> dict[str, str]:
    """Return the metadata of a file: names with the prefix ``mminline.``, values in JSON.

    Args:
        model: Detector or segmentor.
        module: What the graph was made of.
        what: Part of the model.
        shape: Height and width of the image.
        dynamic: Whether the graph is for images of any size instead.
    """
    sizes = dict(enumerate((1, module.in_channels, *shape)))
    if dynamic:
        sizes |= {dim: OPEN_DIMS[dim] for dim in module.open_dims}
    meta = getattr(model, 'dataset_meta', {})
    values = dict(
        version=__version__,
        what=what,
        input=f'{module.pixels.describe()}, float32, ({", ".join(map(str, sizes.values()))})',
        smallest_side=module.smallest_side,
        normalized=module.pixels.normalize,
        classes=_plain(meta.get('classes')),
        palette=_plain(meta.get('palette')),
        resize=resize_rule(model),
        thresholds=_thresholds(module),
        scores=_scores(module),
    )
    return {f'mminline.{name}': json.dumps(value) for name, value in values.items()}


def resize_rule(model: nn.Module) -> dict[str, Any] | None:
    """Read how the test pipeline of a model resizes images.

    Returns:
        Settings of the step, empty if there is none; None if it is not known, or if the pipeline
        has other steps that move pixels.
    """
    config = getattr(model, 'cfg', {})
    if not config.get('test_dataloader'):
        return None
    steps = [
        dict(step)
        for step in get_test_dataset(config).pipeline
        if step['type'].split('.')[-1] not in PLAIN_STEPS
    ]
    if not steps:
        return {}
    step, *more = steps
    if more or step.pop('type').split('.')[-1] != 'Resize':
        return None
    rule = dict(keep_ratio=step.pop('keep_ratio', False))
    for name in ('scale', 'scale_factor'):
        if (value := step.pop(name, None)) is not None:
            rule[name] = list(value) if isinstance(value, Sequence) else [value, value]
    return None if step else rule


def _thresholds(module: ImageModel | DetectorModel) -> dict[str, float] | None:
    if not isinstance(module, DetectorModel):
        return None
    cfg = module.test_cfg
    values = dict(score=cfg.get('score_thr', 0), iou=cfg.nms['iou_threshold'], most=cfg.max_per_img)
    return values | (dict(mask=cfg.mask_thr_binary) if module.with_mask else {})


def _scores(module: ImageModel | DetectorModel) -> dict[str, Any] | None:
    """Say how the scores of a segmentor are resized; with one class only, what is above counts."""
    head = getattr(module, 'head', None)
    if head is None:
        return None
    return dict(align_corners=head.align_corners, threshold=head.threshold)


def _plain(values: Any) -> list | None:
    """Turn names or colours into lists; other forms, such as the name of a palette, into None."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return None
    return [value if isinstance(value, str) else [int(part) for part in value] for value in values]
