"""Steps of detectors between their layers, written so that any number of boxes may come out.

The functions do what their namesakes of mmdet do for one image. Those branch on sizes, which a
graph cannot.
"""

import math

import torch
from torch import Tensor, nn

from .operators import NO_RANK, pool_regions, suppress

Size = tuple[int, int]


def decode(coder: object, priors: Tensor, deltas: Tensor, size: Size) -> Tensor:
    """Move boxes as a ``DeltaXYWHBBoxCoder`` does, clipped to the image.

    Args:
        coder: The coder.
        priors: Corners of the boxes, (..., 4).
        deltas: What a head predicts for them, (..., 4).
        size: Height and width of the image.
    """
    deltas = deltas * deltas.new_tensor(coder.stds) + deltas.new_tensor(coder.means)
    largest = abs(math.log(16 / 1000))
    corner, other = priors[..., :2], priors[..., 2:]
    sides = other - corner
    centre = (corner + other) * 0.5 + sides * deltas[..., :2]
    half = sides * deltas[..., 2:].clamp(-largest, largest).exp() * 0.5
    boxes = torch.cat([centre - half, centre + half], dim=-1)
    if not coder.clip_border:
        return boxes
    height, width = (torch.full((), side, dtype=boxes.dtype) for side in size)
    return boxes.clamp(min=0).minimum(torch.stack([width, height, width, height]))


def select(boxes_N4: Tensor, ranks_N: Tensor, groups_N: Tensor, cfg: dict, most: int) -> Tensor:
    """Return the indices that ``batched_nms`` of mmcv keeps, best first.

    Groups (classes or levels) do not suppress each other: they are moved apart, by the same
    distance as there.

    Args:
        boxes_N4: Corners of the boxes.
        ranks_N: Their scores, or anything of the same order; ``NO_RANK`` for boxes that take no
            part.
        groups_N: Their groups.
        cfg: Settings of the suppression.
        most: How many are kept.
    """
    apart_N4 = boxes_N4
    if not cfg.get('class_agnostic', False):
        taking_part = torch.where((ranks_N > NO_RANK)[:, None], boxes_N4, 0).flatten()
        # With a zero, for the maximum of no boxes.
        furthest = torch.cat([taking_part, boxes_N4.new_zeros(1)]).amax(dim=0) + 1
        apart_N4 = boxes_N4 + (groups_N.to(boxes_N4) * furthest)[:, None]
    return suppress(apart_N4, ranks_N, cfg['iou_threshold'], most)


def extract(extractor: nn.Module, maps: tuple[Tensor, ...], boxes_R4: Tensor) -> Tensor:
    """Cut regions out of the maps as a ``SingleRoIExtractor`` does, large ones of coarse maps."""
    layers = extractor.roi_layers
    sides = boxes_R4[:, 2:] - boxes_R4[:, :2]
    scale_R = sides.prod(dim=1).sqrt() / extractor.finest_scale + 1e-6
    # The rounded logarithm, within the levels.
    limits = torch.tensor([2.0**level for level in range(1, len(layers))])
    levels_R = (scale_R[:, None] >= limits).sum(dim=1)
    layer = layers[0]
    return pool_regions(
        list(maps[: len(layers)]), boxes_R4, levels_R, [part.spatial_scale for part in layers],
        *layer.output_size, layer.sampling_ratio, layer.aligned,
    )  # fmt: skip


def paste(masks_NMM: Tensor, boxes_N4: Tensor, size: Size) -> Tensor:
    """Resize masks to their boxes in the image, bilinearly: probabilities, ``(N, H, W)``.

    Bilinear weights are a product of one for the row and one for the column, so two products of
    matrices do it, without a grid of points for each mask.
    """
    x0, y0, x1, y1 = boxes_N4.unbind(1)
    cells = masks_NMM.shape[-1]
    rows_NHM, columns_NWM = (
        _weights(side, low, high, cells)
        for side, low, high in ((size[0], y0, y1), (size[1], x0, x1))
    )
    return rows_NHM @ masks_NMM @ columns_NWM.transpose(1, 2)


def _weights(side: int, low_N: Tensor, high_N: Tensor, cells: int) -> Tensor:
    """Weights of the cells of a mask for each pixel along a side, ``(N, side, cells)``."""
    pixels = torch.arange(side, dtype=low_N.dtype) + 0.5
    place = (pixels - low_N[:, None]) / (high_N - low_N)[:, None]
    place = torch.where(place.isfinite(), place, 0.5) * cells - 0.5
    return (1 - (place[..., None] - torch.arange(cells, dtype=low_N.dtype)).abs()).clamp(min=0)
