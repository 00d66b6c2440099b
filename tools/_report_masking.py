"""Report on models that have to do without some tokens."""

import argparse
from collections.abc import Iterable

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.utils import ProgressBar
from torch import nn

import _launch
import _reports
import _subjects
from mminline.analysis import Mask, find_layers, masked_attention
from mminline.analysis.plots import plot_masking

METRICS = ('mIoU', 'coco/segm_mAP', 'coco/bbox_mAP')


def report_masking(args: argparse.Namespace) -> None:
    """Evaluate models with tokens hidden from the attention, near ones or as many random ones.

    The score is that of the config's val_evaluator on its validation set. Hidden are the SxS keys
    around each query, itself included, in --layers; or as many random ones for each query.
    A hidden key is no key: weights are those among the others. The local residual stays. Weights
    are written out for this, so it takes long on large images.
    """
    masks = [Mask(), *(Mask(kind, side) for side in args.sides for kind in ('local', 'random'))]
    rows = []
    for subject in args.subjects:
        config = _subjects.read_config(subject, args.cfg_options, args.out / 'runs')
        if not (config.get('val_dataloader') and config.get('val_evaluator')):
            raise ValueError(f'{subject.config} has to have val_dataloader and val_evaluator')
        _launch.check_data(config, 'val')
        for mask, scores in evaluate(subject, config, masks, args.layers, args.seed):
            metric = choose_metric(scores, args.metric)
            rows.append(dict(curve=subject.name, **mask._asdict(), score=scores[metric], **scores))
    _reports.print_table(
        ['model', 'hidden', 'side', metric],
        [
            [row['curve'], row['kind'], str(row['side'] or ''), f'{row["score"]:.4g}']
            for row in rows
        ],
    )
    settings = dict(metric=metric, layers=args.layers, seed=args.seed)
    _reports.save(args.out / 'mask', rows, settings=settings)
    plot_masking(rows, metric, args.out / 'mask.png')


def evaluate(
    subject: _subjects.Subject,
    config: Config,
    masks: list[Mask],
    names: list[str] | None,
    seed: int,
) -> Iterable[tuple[Mask, dict]]:
    """Score a model on its validation set, once for each mask."""
    config.log_level = 'ERROR'
    config.load_from, config.resume = None, False
    runner = Runner.from_cfg(config)
    _subjects.give_weights(runner.model, subject, config)
    layers = choose_layers(find_layers(runner.model), names)
    bar = ValidationBar()
    runner.register_hook(bar)
    for mask in masks:
        bar.title = f'{subject.name}, {mask.kind} {mask.side or ""}'.strip()
        if mask.kind == 'none':
            yield mask, runner.val()
        else:
            with masked_attention(layers, mask, seed):
                yield mask, runner.val()


def choose_layers(layers: dict[str, nn.Module], wanted: list[str] | None) -> dict[str, nn.Module]:
    """Layers of those names, or all."""
    if unknown := [name for name in wanted or [] if name not in layers]:
        raise ValueError(f'--layers has to be of {", ".join(layers)}, got {", ".join(unknown)}')
    return {name: layer for name, layer in layers.items() if name in (wanted or layers)}


class ValidationBar(Hook):
    """A progress bar for each run over the validation set."""

    title = ''

    def before_val_epoch(self, runner: Runner) -> None:
        print(self.title)
        self.bar = ProgressBar(len(runner.val_dataloader))

    def after_val_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.bar.update()

    def after_val_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        print()


def choose_metric(scores: dict, wanted: str | None) -> str:
    """The score to draw."""
    if wanted is not None and wanted not in scores:
        raise ValueError(f'--metric has to be one of {", ".join(scores)}, got {wanted}')
    found = [metric for metric in METRICS if metric in scores]
    return wanted or (found or list(scores))[0]
