"""A model from pixel values to features or classes: the module that becomes a graph."""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from ...checkpoints import load_pretrained, read_checkpoint, unwrap
from ..weights import load_weights

PARTS = {
    'backbone': ('backbone',),
    'features': ('backbone', 'neck'),
    'segmentor': ('backbone', 'neck', 'decode_head'),
}


def choose_part(model: nn.Module, what: str | None = None) -> str:
    """Return the part of a model to export, or raise if the model does not have it.

    Args:
        model: Detector or segmentor.
        what: A key of ``PARTS``; None for 'segmentor', or for 'features' of a detector.
    """
    is_segmentor = hasattr(model, 'decode_head')
    what = what or ('segmentor' if is_segmentor else 'features')
    if what not in PARTS:
        raise ValueError(f'what has to be one of {", ".join(PARTS)}, got {what!r}')
    if what == 'segmentor' and not is_segmentor:
        raise ValueError(
            f'what=segmentor needs a segmentor, got {type(model).__name__}, whose head cannot be '
            'exported: use features or backbone'
        )
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
    load_weights(model, checkpoint, PARTS[what])


class ImageModel(nn.Module):
    """An image batch of pixel values to the features or the class map of a model.

    Args:
        model: Detector or segmentor.
        what: 'backbone', 'features' (backbone and neck) or 'segmentor'.
        normalize: Whether mean and standard deviation of the config belong to the graph.
    """

    def __init__(self, model: nn.Module, what: str, normalize: bool) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.neck = model.neck if what != 'backbone' and model.with_neck else None
        self.head = model.decode_head if what == 'segmentor' else None
        self.normalize = normalize and hasattr(model.data_preprocessor, 'mean')
        if self.normalize:
            self.register_buffer('mean', model.data_preprocessor.mean.clone())
            self.register_buffer('std', model.data_preprocessor.std.clone())

    def forward(self, image: Tensor) -> tuple[Tensor, ...] | Tensor:
        pixels = (image - self.mean) / self.std if self.normalize else image
        features = self.backbone(pixels)
        if self.neck is not None:
            features = self.neck(features)
        return tuple(features) if self.head is None else self.class_map(features, image.shape[-2:])

    def class_map(self, features: tuple[Tensor, ...], size: tuple[int, int]) -> Tensor:
        """Predict the class of each pixel, as mmseg does for a whole image."""
        logits = F.interpolate(
            self.head(features), size, mode='bilinear', align_corners=self.head.align_corners
        )
        if self.head.out_channels == 1:
            return (logits.sigmoid() > self.head.threshold).long().squeeze(1)
        return logits.argmax(dim=1)
