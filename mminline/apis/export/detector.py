"""A detector from pixel values to its detections: the module that becomes a graph."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .boxes import Size, paste
from .dense import detect_dense, propose
from .pixels import Pixels
from .regions import detect_in_regions, predict_masks
from .tracing import SMALLEST


def last_head(model: nn.Module) -> nn.Module:
    """Return the head whose ``test_cfg`` has thresholds and number of detections."""
    return model.roi_head if hasattr(model, 'roi_head') else model.bbox_head


def set_thresholds(model: nn.Module, score_thr: float | None, nms_thr: float | None) -> None:
    """Change the least score of detections and their largest overlap, where they are given."""
    for name, value in (('score_thr', score_thr), ('nms_thr', nms_thr)):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f'{name} has to be from 0 to 1, got {name}={value}')
    cfg = last_head(model).test_cfg
    if score_thr is not None:
        cfg.score_thr = score_thr
    if nms_thr is not None:
        cfg.nms.iou_threshold = nms_thr


class DetectorModel(nn.Module):
    """One image of RGB values to boxes with scores, labels, and masks if the model has them.

    The settings are those of the model's ``test_cfg``. The graph pads the image to a multiple of
    32, as mmdet does; a backbone that ignores padding sees the image without it. If neck and heads
    ignore padding too, nothing is padded.

    Args:
        model: RetinaNet, Faster, Mask or Cascade R-CNN of mmdet.
        normalize: Whether mean and standard deviation of the config belong to the graph.
        with_paste: Whether masks are resized to their boxes in the image and made binary.
    """

    open_dims = (2, 3)

    def __init__(self, model: nn.Module, normalize: bool = True, with_paste: bool = False) -> None:
        super().__init__()
        preprocessor = model.data_preprocessor
        self.pixels = Pixels(preprocessor, normalize)
        self.backbone = model.backbone
        self.in_channels = getattr(model.backbone, 'in_channels', 3)
        self.neck = model.neck
        self.rpn_head, self.roi_head = (
            getattr(model, name, None) for name in ('rpn_head', 'roi_head')
        )
        self.bbox_head = model.bbox_head if self.roi_head is None else None
        self.with_mask = self.roi_head is not None and self.roi_head.with_mask
        if with_paste and not self.with_mask:
            raise ValueError('pasting needs masks, and this detector predicts none')
        self.with_paste = with_paste
        self.divisor = preprocessor.pad_size_divisor
        self.pad_value = float(preprocessor.pad_value)
        # As its option says, and if it takes for padding what mmdet pads with.
        self.backbone_ignores_padding = (
            getattr(self.backbone, 'ignore_padding', False)
            and self.backbone.pad_value == self.pad_value
        )
        self.pads_maps = not getattr(model, 'ignores_padding', False)
        self.needed_side = getattr(self.backbone, 'smallest_side', SMALLEST)
        # Padding makes any image large enough for the backbone, or mmdet would refuse it.
        self.smallest_side = 1 if self.divisor >= self.needed_side else self.needed_side
        self.test_cfg = last_head(model).test_cfg
        threshold = float(self.test_cfg.get('score_thr', 0))
        self.register_buffer('score_threshold', torch.tensor([threshold]))

    def name_outputs(self, count: int) -> list[str]:
        """Name the outputs of the graph."""
        return ['dets', 'labels', 'masks'][:count]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        size = image.shape[-2:]
        maps = self.neck(self.features(self.pixels(image)))
        if self.roi_head is None:
            boxes, scores, labels = detect_dense(self.bbox_head, maps, size, self.score_threshold)
        else:
            proposed = propose(self.rpn_head, maps, size)
            boxes, scores, labels = detect_in_regions(
                self.roi_head, maps, proposed, size, self.score_threshold
            )
        dets = torch.cat([boxes, scores[:, None]], dim=1)
        if not self.with_mask:
            return dets, labels
        masks = predict_masks(self.roi_head, maps, boxes, labels)
        if self.with_paste:
            masks = paste(masks, boxes, size) >= self.test_cfg.mask_thr_binary
        return dets, labels, masks

    def features(self, image: Tensor) -> tuple[Tensor, ...]:
        """Run the backbone; its maps are those of the padded image, unless that is ignored."""
        height, width = (padded_side(side, self.divisor) for side in image.shape[-2:])
        if not self.backbone_ignores_padding:
            return self.backbone(pad(image, (height, width), self.pad_value))
        # Of a small image, the backbone sees as much padding as it needs.
        seen = [torch.sym_max(side, self.needed_side) for side in image.shape[-2:]]
        maps = self.backbone(pad(image, seen, self.pad_value))
        if not self.pads_maps:
            return maps
        return tuple(
            pad(part, (-(-height // stride), -(-width // stride)))
            for part, stride in zip(maps, self.backbone.strides, strict=True)
        )


def padded_side(side: int, divisor: int) -> int:
    """Round a side up to whole multiples."""
    return (side + divisor - 1) // divisor * divisor


def pad(map_BCHW: Tensor, size: Size, value: float = 0.0) -> Tensor:
    """Pad a map at the bottom and the right to a size."""
    below, right = (wanted - side for wanted, side in zip(size, map_BCHW.shape[-2:], strict=True))
    return F.pad(map_BCHW, (0, right, 0, below), value=value)
