"""Boxes of a head that predicts for anchors on every cell: RetinaNet, or proposals of an RPN."""

import torch
from torch import Tensor, nn

from .boxes import NO_RANK, Size, decode, select


def candidates(head: nn.Module, maps: tuple[Tensor, ...], size: Size) -> tuple[Tensor, ...]:
    """Return boxes, ranks, labels and levels of the best anchors of each level.

    A box that is too small has no rank.
    """
    scores, deltas = head(maps)
    priors = head.prior_generator.grid_priors(
        [level.shape[-2:] for level in scores], dtype=maps[0].dtype, device=maps[0].device
    )
    best = [_best(head, *level) for level in zip(scores, deltas, priors, strict=True)]
    levels = torch.cat([torch.full_like(part[1], index) for index, part in enumerate(best)])
    ranks, labels, deltas, priors = (torch.cat(parts) for parts in zip(*best, strict=True))
    boxes = decode(head.bbox_coder, priors, deltas, size)
    smallest = head.test_cfg.get('min_bbox_size', -1)
    if smallest >= 0:
        is_large = ((boxes[:, 2:] - boxes[:, :2]) > smallest).all(dim=1)
        ranks = torch.where(is_large, ranks, NO_RANK)
    return boxes, ranks, labels, levels


def _best(head: nn.Module, scores: Tensor, deltas: Tensor, priors: Tensor) -> tuple[Tensor, ...]:
    """Return ranks, labels, deltas and anchors of the best of a level.

    A sigmoid is ranked by its argument: in float32 those of all values above 17 are 1.
    """
    ranks_AK = scores[0].permute(1, 2, 0).reshape(-1, head.cls_out_channels)
    if not head.use_sigmoid_cls:
        ranks_AK = ranks_AK.softmax(-1)[:, :-1]
    deltas_A4 = deltas[0].permute(1, 2, 0).reshape(-1, 4)
    num_classes = ranks_AK.shape[1]
    ranks_N = ranks_AK.flatten()
    most = head.test_cfg.get('nms_pre', -1)
    count = torch.sym_min(most, ranks_N.shape[0]) if most > 0 else ranks_N.shape[0]
    best, index = ranks_N.topk(count)
    anchors = index // num_classes
    return best, index % num_classes, deltas_A4[anchors], priors[anchors]


def propose(head: nn.Module, maps: tuple[Tensor, ...], size: Size) -> Tensor:
    """Return the boxes that an RPN proposes, best first."""
    boxes, ranks, _, levels = candidates(head, maps, size)
    cfg = head.test_cfg
    return boxes[select(boxes, ranks, levels, cfg.nms, cfg.max_per_img)]


def detect_dense(
    head: nn.Module, maps: tuple[Tensor, ...], size: Size, score_threshold: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return boxes, scores and labels that a one-stage head finds, best first."""
    boxes, ranks, labels, _ = candidates(head, maps, size)
    scores = ranks.sigmoid() if head.use_sigmoid_cls else ranks
    ranks = torch.where(scores > score_threshold, ranks, NO_RANK)
    cfg = head.test_cfg
    kept = select(boxes, ranks, labels, cfg.nms, cfg.max_per_img)
    return boxes[kept], scores[kept], labels[kept]
