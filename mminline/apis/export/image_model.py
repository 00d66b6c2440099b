"""A model from pixel values to features or classes: the module that becomes a graph."""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from ...checkpoints import load_pretrained, read_checkpoint, unwrap
from ..model import saved_meta
from ..weights import load_weights
from .pixels import Pixels
from .tracing import OPEN_DIMS, SMALLEST

PARTS = {
    'backbone': ('backbone',),
    'features': ('backbone', 'neck'),
    'segmentor': ('backbone', 'neck', 'decode_head'),
    'detector': ('backbone', 'neck', 'rpn_head', 'bbox_head', 'roi_head'),
}


def choose_part(model: nn.Module, what: str | None = None) -> str:
    """Return the part of a model to export, or raise if the model does not have it.

    Args:
        model: Detector or segmentor.
        what: A key of ``PARTS``; None for 'segmentor' or 'detector'.
    """
    kind = 'segmentor' if hasattr(model, 'decode_head') else 'detector'
    what = what or kind
    if what not in PARTS:
        raise ValueError(f'what has to be one of {", ".join(PARTS)}, got {what!r}')
    if what in ('segmentor', 'detector') and what != kind:
        raise ValueError(f'what={what} needs a {what}, got {type(model).__name__}: use {kind}')
    if what == 'segmentor' and isinstance(model.decode_head, nn.ModuleList):
        raise ValueError('a cascade of heads cannot be exported: use what=features or backbone')
    if what == 'features' and not model.with_neck:
        raise ValueError('what=features needs a neck, and this model has none: use backbone')
    return what


def load_part(model: nn.Module, checkpoint: str | Path, what: str) -> None:
    """Fill a part of a model completely; for 'backbone' from a published backbone too.

    Args:
        model: Detector or segmentor.
        checkpoint: File or address of the weights.
        what: A key of ``PARTS``.
    """
    if what == 'backbone':
        names = unwrap(read_checkpoint(checkpoint)).keys()
        if not any(f'backbone.{name}' in names for name in model.backbone.state_dict()):
            load_pretrained(model.backbone, checkpoint)
            return
    saved = load_weights(model, checkpoint, PARTS[what])
    model.dataset_meta |= saved_meta(saved)


class ImageModel(nn.Module):
    """An image batch of pixel values to the features or the class map of a model.

    Args:
        model: Detector or segmentor.
        what: 'backbone', 'features' (backbone and neck) or 'segmentor'.
        normalize: Whether mean and standard deviation of the config belong to the graph.
    """

    open_dims = tuple(OPEN_DIMS)

    def __init__(self, model: nn.Module, what: str, normalize: bool) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.neck = model.neck if what != 'backbone' and model.with_neck else None
        self.head = model.decode_head if what == 'segmentor' else None
        self.pixels = Pixels(model.data_preprocessor, normalize)
        self.in_channels = getattr(model.backbone, 'in_channels', 3)
        self.smallest_side = getattr(model.backbone, 'smallest_side', SMALLEST)

    def name_outputs(self, count: int) -> list[str]:
        """Name the outputs of the graph."""
        if self.head is not None:
            return ['class_map', 'scores']
        return [f'map{index}' for index in range(count)]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        features = self.backbone(self.pixels(image))
        if self.neck is not None:
            features = self.neck(features)
        if self.head is None:
            return tuple(features)
        scores = self.head(features)
        return self.class_map(scores, image.shape[-2:]), scores

    def class_map(self, scores: Tensor, size: tuple[int, int]) -> Tensor:
        """Predict the class of each pixel, as mmseg does for a whole image."""
        logits = F.interpolate(scores, size, mode='bilinear', align_corners=self.head.align_corners)
        if self.head.out_channels == 1:
            return (logits.sigmoid() > self.head.threshold).long().squeeze(1)
        return logits.argmax(dim=1)
