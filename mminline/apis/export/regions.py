"""Boxes and masks of the regions that an RPN proposes: R-CNN heads, of one stage or a cascade."""

import torch
from torch import Tensor, nn

from .boxes import NO_RANK, Size, decode, extract, select

Maps = tuple[Tensor, ...]


def detect_in_regions(
    roi_head: nn.Module, maps: Maps, boxes_R4: Tensor, size: Size, score_threshold: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return boxes, scores and labels that are found in proposed boxes, best first.

    A cascade moves the boxes from stage to stage, and averages the scores of all stages.
    """
    heads, extractors = stages(roi_head.bbox_head), stages(roi_head.bbox_roi_extractor)
    total = 0
    for head, extractor in zip(heads, extractors, strict=True):
        logits, deltas = head(extract(extractor, maps, boxes_R4))
        total = total + logits
        deltas = deltas.unflatten(1, (-1, 4))
        if head is not heads[-1]:
            boxes_R4 = _move_by_class(head, boxes_R4, logits, deltas, size)
    scores_RK = (total / len(heads)).softmax(dim=-1)[:, :-1]
    boxes = decode(head.bbox_coder, boxes_R4[:, None], deltas, size)
    boxes = boxes.expand(-1, head.num_classes, -1).flatten(0, 1)
    labels = torch.arange(head.num_classes).expand(scores_RK.shape).flatten()
    scores = scores_RK.flatten()
    cfg = roi_head.test_cfg
    ranks = torch.where(scores > score_threshold, scores, NO_RANK)
    kept = select(boxes, ranks, labels, cfg.nms, cfg.max_per_img)
    return boxes[kept], scores[kept], labels[kept]


def _move_by_class(
    head: nn.Module, boxes_R4: Tensor, logits: Tensor, deltas: Tensor, size: Size
) -> Tensor:
    """Move boxes by what a head predicts for the most likely class of each."""
    if not head.reg_class_agnostic:
        best = logits[:, :-1].argmax(dim=1)
        deltas = deltas.gather(1, best[:, None, None].expand(-1, 1, 4))
    return decode(head.bbox_coder, boxes_R4, deltas.squeeze(1), size)


def predict_masks(roi_head: nn.Module, maps: Maps, boxes_R4: Tensor, labels_R: Tensor) -> Tensor:
    """Return the probability of each object inside its box, ``(R, 28, 28)`` with usual settings."""
    heads, extractors = stages(roi_head.mask_head), stages(roi_head.mask_roi_extractor)
    total = 0
    for head, extractor in zip(heads, extractors, strict=True):
        logits = head(extract(extractor, maps, boxes_R4))
        if not head.class_agnostic:
            index = labels_R[:, None, None, None].expand(-1, 1, *logits.shape[-2:])
            logits = logits.gather(1, index)
        total = total + logits.sigmoid()
    return (total / len(heads)).squeeze(1)


def stages(part: nn.Module) -> list[nn.Module]:
    """List the stages of a part of an R-CNN head: one, or those of a cascade."""
    return list(part) if isinstance(part, nn.ModuleList) else [part]
