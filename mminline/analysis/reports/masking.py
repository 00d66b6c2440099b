"""Report on models that have to do without some keys: their scores."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.registry import EVALUATOR
from mmengine.runner import Runner
from mmengine.utils import track_iter_progress
from torch import nn
from torch.utils.data import DataLoader

from ...engine.data import check_data
from .. import Mask, find_layers, masked_attention
from ..plots import plot_masking
from .inputs import ModelSource
from .tables import print_table, save_rows

METRICS = ('mIoU', 'coco/segm_mAP', 'coco/bbox_mAP')


def report_masking(
    models: Sequence[ModelSource],
    out: Path,
    sides: Sequence[int] = (3, 5, 7),
    layers: Sequence[str] | None = None,
    metric: str | None = None,
    seed: int = 0,
) -> None:
    """Evaluate models with tokens hidden from the attention, near ones or as many random ones.

    The score is that of the config's val_evaluator on its validation set. Hidden are the SxS keys
    around each query, itself included, in the chosen layers; or as many random ones for each query.
    A hidden key is no key: weights are those among the others. The local residual stays. Weights
    are written out for this, so it takes long on large images.

    Args:
        models: Models to compare.
        out: Folder for mask.csv, .json and .png.
        sides: Sides of the square of keys that is hidden, odd numbers.
        layers: Names of the layers in which keys are hidden, such as '1.1'; None for all.
        metric: Score to draw; None for mIoU, or AP of masks or of boxes.
        seed: Of random masks.
    """
    masks = [Mask(), *(Mask(kind, side) for side in sides for kind in ('local', 'random'))]
    rows = []
    for source in models:
        for mask, scores in score_masks(source, masks, layers, seed):
            chosen = choose_metric(scores, metric)
            rows.append(dict(curve=source.name, **mask._asdict(), score=scores[chosen], **scores))
    print_table(
        ['model', 'hidden', 'side', chosen],
        [
            [row['curve'], row['kind'], str(row['side'] or ''), f'{row["score"]:.4g}']
            for row in rows
        ],
    )
    save_rows(out / 'mask', rows, settings=dict(metric=chosen, layers=layers, seed=seed))
    plot_masking(rows, chosen, out / 'mask.png')


def score_masks(
    source: ModelSource, masks: Sequence[Mask], names: Sequence[str] | None, seed: int
) -> Iterator[tuple[Mask, dict]]:
    """Score a model on its validation set, once for each mask."""
    model = source.load()
    layers = choose_layers(find_layers(model), names)
    loader, evaluator = build_validation(model.cfg)
    for mask in masks:
        print(f'{source.name}, {mask.kind} {mask.side or ""}'.strip())
        if mask.kind == 'none':
            yield mask, evaluate(model, loader, evaluator)
        else:
            with masked_attention(layers, mask, seed):
                yield mask, evaluate(model, loader, evaluator)


def choose_layers(
    layers: dict[str, nn.Module], names: Sequence[str] | None
) -> dict[str, nn.Module]:
    """Return the layers of those names, or all."""
    if unknown := [name for name in names or [] if name not in layers]:
        raise ValueError(f'layers has to be of {", ".join(layers)}, got {", ".join(unknown)}')
    return {name: layer for name, layer in layers.items() if name in (names or layers)}


def build_validation(config: Config) -> tuple[DataLoader, Evaluator]:
    """Build the validation set and the evaluator of a config."""
    if not (config.get('val_dataloader') and config.get('val_evaluator')):
        raise ValueError(
            f'{config.filename or "the config"} has to have val_dataloader and val_evaluator'
        )
    check_data(config, 'val')
    loader = Runner.build_dataloader(config.val_dataloader)
    metrics = config.val_evaluator
    if 'metrics' in metrics:  # an evaluator of its own kind
        evaluator = EVALUATOR.build({'type': 'Evaluator', **metrics})
    else:
        evaluator = Evaluator(metrics)
    evaluator.dataset_meta = loader.dataset.metainfo
    return loader, evaluator


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, evaluator: Evaluator) -> dict:
    """Score a model as it is; a training's validation loop, without the runner."""
    for batch in track_iter_progress((loader, len(loader))):
        evaluator.process(model.val_step(batch), batch)
    print()
    return evaluator.evaluate(len(loader.dataset))


def choose_metric(scores: dict, metric: str | None) -> str:
    """Return the name of the score to draw."""
    if metric is not None and metric not in scores:
        raise ValueError(f'metric has to be one of {", ".join(scores)}, got {metric}')
    found = [name for name in METRICS if name in scores]
    return metric or (found or list(scores))[0]
