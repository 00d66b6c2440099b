"""RoIAlign of many boxes on a CPU: each cell as a weighted sum of pixels.

mmcv's operation runs on one core, channel by channel. Here pixels are rows of a table, channels
last, and PyTorch's ``embedding_bag`` sums weighted rows for all cells on all cores.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layers.statistics import upcast
from .decision import is_plain_inference

# mmcv takes about this many times as long for a cell as the table takes for a pixel.
PIXELS_PER_CELL = 8


def suits_table(layer: nn.Module) -> bool:
    """Whether a layer is mmcv's RoIAlign, with settings that the fast form knows."""
    return (
        (type(layer).__module__, type(layer).__name__) == ('mmcv.ops.roi_align', 'RoIAlign')
        and layer.sampling_ratio == 0
        and layer.pool_mode == 'avg'
        and not layer.use_torchvision
    )


def run_roi_align(layer: nn.Module, map_BCHW: Tensor, boxes_K5: Tensor) -> Tensor:
    """Run a layer that suits, in the fast form in inference where there are many boxes."""
    map_BCHW, boxes_K5 = upcast(map_BCHW), upcast(boxes_K5)  # mmcv has no kernel for bfloat16
    cells = len(boxes_K5) * layer.output_size[0] * layer.output_size[1]
    many = cells * PIXELS_PER_CELL >= map_BCHW[:, 0].numel()
    if many and map_BCHW.dtype == boxes_K5.dtype and is_plain_inference(map_BCHW):
        return roi_align(map_BCHW, boxes_K5, layer.output_size, layer.spatial_scale, layer.aligned)
    # Contiguous: mmcv reads memory without a look at the strides.
    return type(layer).forward(layer, map_BCHW.contiguous(), boxes_K5)


def roi_align(
    map_BCHW: Tensor, boxes_K5: Tensor, output_size: tuple[int, int], scale: float, aligned: bool
) -> Tensor:
    """Pool boxes to cells, with as many samples in a cell as it has pixels.

    It is mmcv's ``roi_align`` with ``sampling_ratio=0`` and ``pool_mode='avg'``, up to rounding.
    Samples of a cell are at most a pixel apart, so they touch one row of pixels more than there
    are rows of samples; the weights of a sample's neighbours are summed up for each such row, and
    the weight of a pixel is the product of those of its row and its column.

    Args:
        map_BCHW: Maps.
        boxes_K5: Number of the image, left, top, right, bottom, in pixels of the image.
        output_size: Rows and columns of cells.
        scale: Size of the map relative to the image.
        aligned: Whether a pixel's centre is half a pixel from its corner.

    Returns:
        Cells, ``(K, C, rows, columns)``, channels last in memory.
    """
    channels, height, width = map_BCHW.shape[1:]
    table = map_BCHW.permute(0, 2, 3, 1).reshape(-1, channels)
    corners_K4 = boxes_K5[:, 1:] * scale - (0.5 if aligned else 0)
    sizes_K2 = corners_K4[:, 2:] - corners_K4[:, :2]
    if not aligned:
        sizes_K2 = sizes_K2.clamp(min=1)
    cells_2 = sizes_K2.new_tensor([output_size[1], output_size[0]])
    samples_K2 = (sizes_K2 / cells_2).ceil().long()
    out = map_BCHW.new_zeros(len(boxes_K5), *output_size, channels)
    # Boxes with the same numbers of samples go together.
    kinds, kind_K = samples_K2.unique(dim=0, return_inverse=True)
    for kind, (across, down) in enumerate(kinds.tolist()):
        if min(across, down) < 1:
            continue  # an empty box has no samples
        group = (kind_K == kind).nonzero().squeeze(1)
        starts, sizes = corners_K4[group, :2], sizes_K2[group]
        x_KPS, x_weight_KPS = _touched(starts[:, 0], sizes[:, 0], output_size[1], across, width)
        y_KPS, y_weight_KPS = _touched(starts[:, 1], sizes[:, 1], output_size[0], down, height)
        first_row_K = boxes_K5[group, 0].long() * height
        rows = (first_row_K[:, None, None] + y_KPS) * width
        pixels = rows[:, :, None, :, None] + x_KPS[:, None, :, None, :]
        weights = y_weight_KPS[:, :, None, :, None] * x_weight_KPS[:, None, :, None, :]
        sums = F.embedding_bag(
            pixels.flatten(0, 2).flatten(1),
            table,
            per_sample_weights=weights.flatten(0, 2).flatten(1),
            mode='sum',
        )
        out[group] = sums.view(len(group), *output_size, channels)
    return out.permute(0, 3, 1, 2)


def _touched(
    start_K: Tensor, size_K: Tensor, cells: int, samples: int, length: int
) -> tuple[Tensor, Tensor]:
    """Pixels that the samples of each cell touch along one side, and their weights.

    Args:
        start_K: Where boxes begin.
        size_K: How long they are.
        cells: Cells along the side.
        samples: Samples in a cell.
        length: Pixels of the map along the side.

    Returns:
        Index and weight of each pixel, both ``(K, cells, samples + 1)``.
    """
    cell_K = size_K / cells
    fractions_S = (torch.arange(samples, dtype=size_K.dtype) + 0.5) / samples
    offsets_PS = torch.arange(cells, dtype=size_K.dtype)[:, None] + fractions_S
    where_KPS = start_K[:, None, None] + offsets_PS * cell_K[:, None, None]
    inside_KPS = (where_KPS >= -1) & (where_KPS <= length)
    where_KPS = where_KPS.clamp(0, length - 1)
    before_KPS = where_KPS.floor()
    after_weight_KPS = where_KPS - before_KPS
    first_KP1 = before_KPS[..., :1]
    place_KPS = (before_KPS - first_KP1).long()
    weights = where_KPS.new_zeros(*where_KPS.shape[:2], samples + 1)
    weights.scatter_add_(2, place_KPS, (1 - after_weight_KPS) * inside_KPS / samples)
    # Rounding can put the last sample a hair beyond the last pixel, where it has next to no weight.
    after_KPS = (place_KPS + 1).clamp(max=samples)
    weights.scatter_add_(2, after_KPS, after_weight_KPS * inside_KPS / samples)
    pixels = first_KP1.long() + torch.arange(samples + 1)
    return pixels.clamp(max=length - 1), weights
