"""Layers of other libraries in a form that leaves sizes of maps open while a graph is traced."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .open_windows import open_window_form


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
    """Make a matrix that averages the cells of a side in bins, one a row, as adaptive pooling does.

    Bin ``i`` has the cells from ``floor(i side / bins)`` to ``ceil((i + 1) side / bins)``, written
    with comparisons of products, so that the side may be open.
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
    """Replace the layers of other libraries that want to know the size of a map beforehand."""
    for name, part in list(module.named_children()):
        form = open_form(part)
        if form is None:
            open_sizes(part)
        else:
            setattr(module, name, form)


def open_form(part: nn.Module) -> nn.Module | None:
    """Return the form of a layer that leaves the size of its map open; None for most layers."""
    if isinstance(part, nn.AdaptiveAvgPool2d):
        return OpenAveragePool(part.output_size)
    if type(part).__name__ == 'Upsample' and part.scale_factor in (2, 4, 8):
        return OpenUpsample(int(part.scale_factor), part.mode, part.align_corners)
    return open_window_form(part)
