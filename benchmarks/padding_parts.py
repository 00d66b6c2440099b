"""Difference between an image alone and in a padded batch, after each part of a detector."""

from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, init_default_scope
from tables import markdown
from torch import Tensor, nn

# Of the largest value: more than rounding.
NOTICEABLE = 1e-4


def compare_parts(config: Config, checkpoint: Path | str, batch_size: int) -> str:
    """Make a table of the differences after backbone, neck and heads.

    Args:
        config: Config of a Mask R-CNN.
        checkpoint: Its weights.
        batch_size: Size of the padded batch, of the first images of the test data.
    """
    from mminline.apis import init_model

    model = init_model(config, checkpoint, device='cpu')
    init_default_scope('mmdet')
    dataset = DATASETS.build(config.test_dataloader.dataset)
    samples = [dataset[index] for index in range(batch_size)]
    together = list(run_parts(model, samples))
    rows = [('', 'largest difference', 'cells that differ', 'farthest from the border')]
    found: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for index, sample in enumerate(samples):
        shape = sample['data_samples'].img_shape
        for (name, stride, alone), (_, _, batch) in zip(
            run_parts(model, [sample]), together, strict=True
        ):
            rows_columns = [-(-side // stride) for side in shape]
            own, other = (crop(part, *rows_columns) for part in (alone[0], batch[index]))
            found.setdefault(name, []).append((own, other))
    rows += [(name, *describe(pairs)) for name, pairs in found.items()]
    return markdown(rows)


@torch.no_grad()
def run_parts(model: nn.Module, samples: list[dict]) -> Iterator[tuple[str, int, Tensor]]:
    """Yield name, stride and maps of each part for a batch."""
    images = model.data_preprocessor(pseudo_collate(samples))['inputs']
    maps = model.backbone(images)
    strides = [images.shape[3] // part.shape[3] for part in maps]
    yield from ((f'backbone, stride {s}', s, part) for s, part in zip(strides, maps, strict=True))
    features = model.neck(maps)
    strides.append(2 * strides[-1])
    yield from ((f'neck, stride {s}', s, part) for s, part in zip(strides, features, strict=True))
    scores, _ = model.rpn_head(features)
    yield from ((f'RPN, stride {s}', s, part) for s, part in zip(strides, scores, strict=True))


def crop(map_CHW: Tensor, rows: int, columns: int) -> Tensor:
    return map_CHW[:, :rows, :columns]


def describe(pairs: list[tuple[Tensor, Tensor]]) -> tuple[str, str, str]:
    """Largest difference, share of cells that differ, and how many cells from the border any is."""
    largest = max(own.abs().max() for own, _ in pairs)
    worst, count, total, depth = 0.0, 0, 0, 0
    for own, other in pairs:
        difference_HW = (own - other).abs().amax(dim=0) / largest
        differs_HW = difference_HW > NOTICEABLE
        worst = max(worst, difference_HW.max().item())
        count += differs_HW.sum().item()
        total += differs_HW.numel()
        ends = torch.tensor(differs_HW.shape) - differs_HW.nonzero()
        depth = max(depth, ends.amin(dim=1).max().item() if len(ends) else 0)
    return f'{worst:.1e}', f'{count / total:.1%}', f'{depth} cells'
