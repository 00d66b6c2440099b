"""What ``export.py`` turns into a graph: a model from pixel values to features or classes."""

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn


def build(config: Config) -> nn.Module:
    """The model of a config in evaluation mode; its weights are loaded elsewhere."""
    init_default_scope(config.get('default_scope', 'mmengine'))
    config.model.backbone.init_cfg = None
    return revert_sync_batchnorm(MODELS.build(config.model)).eval()


class Exported(nn.Module):
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
        """The class of each pixel, as mmseg predicts it for a whole image."""
        logits = F.interpolate(
            self.head(features), size, mode='bilinear', align_corners=self.head.align_corners
        )
        if self.head.out_channels == 1:
            return (logits.sigmoid() > self.head.threshold).long().squeeze(1)
        return logits.argmax(dim=1)


class OpenAveragePool(nn.Module):
    """``nn.AdaptiveAvgPool2d`` for maps of open size, as two products with matrices of means."""

    def __init__(self, output_size: int | tuple[int, int]) -> None:
        super().__init__()
        self.sizes = output_size if isinstance(output_size, tuple) else (output_size, output_size)

    def forward(self, map_BCHW: Tensor) -> Tensor:
        rows, columns = (
            mean_matrix(side, bins, map_BCHW)
            for side, bins in zip(map_BCHW.shape[-2:], self.sizes, strict=True)
        )
        return rows @ map_BCHW @ columns.transpose(0, 1)


def mean_matrix(side: int, bins: int, like: Tensor) -> Tensor:
    """Row ``i`` averages the cells from ``floor(i side / bins)`` to ``ceil((i + 1) side / bins)``.

    Written with comparisons of products, so that the side may be open.
    """
    cells = torch.arange(side, device=like.device)
    first = torch.arange(bins, device=like.device)[:, None] * side
    inside = ((cells + 1) * bins > first) & (cells * bins < first + side)
    inside = inside.to(like.dtype)
    return inside / inside.sum(dim=1, keepdim=True)


class OpenUpsample(nn.Module):
    """``Upsample`` of mmseg by a whole factor, without the ``int()`` that fixes an open size."""

    def __init__(self, factor: int, mode: str, align_corners: bool | None) -> None:
        super().__init__()
        self.factor = factor
        self.mode = mode
        self.align_corners = align_corners

    def forward(self, map_BCHW: Tensor) -> Tensor:
        size = [self.factor * side for side in map_BCHW.shape[-2:]]
        return F.interpolate(map_BCHW, size, mode=self.mode, align_corners=self.align_corners)


def open_sizes(module: nn.Module) -> None:
    """Replace the layers of heads that want to know the size of a map beforehand."""
    for name, part in list(module.named_children()):
        if isinstance(part, nn.AdaptiveAvgPool2d):
            setattr(module, name, OpenAveragePool(part.output_size))
        elif type(part).__name__ == 'Upsample' and part.scale_factor in (2, 4, 8):
            factor = int(part.scale_factor)
            setattr(module, name, OpenUpsample(factor, part.mode, part.align_corners))
        else:
            open_sizes(part)
