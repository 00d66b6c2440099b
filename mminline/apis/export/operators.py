"""Operations of mmcv that choose boxes and cut regions, with their form in standard ONNX.

``torch.export`` records them as single nodes, of which it knows the shapes only;
``onnx_translations`` writes these nodes as operators of ONNX.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# The first in which GELU is one operator; as several, it takes a tenth of the time of a detector.
OPSET = 20
# The lowest number of float32; ONNX keeps what is above a threshold.
NO_RANK = -3.4028234663852886e38


@torch.library.custom_op('mminline::suppress', mutates_args=())
def suppress(boxes_N4: Tensor, ranks_N: Tensor, iou_threshold: float, most: int) -> Tensor:
    """Return the indices of the boxes that non-maximum suppression keeps, best first.

    Args:
        boxes_N4: Corners of the boxes.
        ranks_N: Their ranks; boxes take part if it is above ``NO_RANK``.
        iou_threshold: A box is dropped if its overlap with a better one is above it.
        most: How many are kept.
    """
    from mmcv.ops import nms  # compiled: segmentors do without

    taking_part = (ranks_N > NO_RANK).nonzero().squeeze(1)
    if len(taking_part) == 0:
        return taking_part
    _, kept = nms(boxes_N4[taking_part], ranks_N[taking_part], iou_threshold)
    return taking_part[kept[:most]]


@suppress.register_fake
def _(boxes_N4, ranks_N, iou_threshold, most):
    # At least one, so that no layer asks for a form of its own without boxes (batch norms do). A
    # graph of ONNX has no such conditions, and runs without boxes too.
    kept = torch.library.get_ctx().new_dynamic_size(min=1, max=most)
    return ranks_N.new_empty(kept, dtype=torch.long)


@torch.library.custom_op('mminline::pool_regions', mutates_args=())
def pool_regions(
    maps: Sequence[Tensor], boxes_R4: Tensor, levels_R: Tensor, scales: Sequence[float],
    height: int, width: int, samples: int, aligned: bool,
) -> Tensor:  # fmt: skip
    """Cut each box out of the map of its level by RoIAlign, ``(R, C, height, width)``.

    Args:
        maps: Maps of one image.
        boxes_R4: Corners in pixels of the image.
        levels_R: Number of the map of each box.
        scales: Cells a pixel of each map.
        height: Cells of a region.
        width: The same across.
        samples: Points a cell and side; 0 for as many as a cell of the region has of the map.
        aligned: Whether the centre of the first cell is at 0.5.
    """
    from mmcv.ops import roi_align

    pooled = maps[0].new_zeros(len(boxes_R4), maps[0].shape[1], height, width)
    for level, (features, scale) in enumerate(zip(maps, scales, strict=True)):
        where = (levels_R == level).nonzero().squeeze(1)
        if len(where):
            rois = torch.cat([boxes_R4.new_zeros(len(where), 1), boxes_R4[where]], dim=1)
            options = ((height, width), scale, samples, 'avg', aligned)
            pooled[where] = roi_align(features, rois, *options)
    return pooled


@pool_regions.register_fake
def _(maps, boxes_R4, levels_R, scales, height, width, samples, aligned):
    return maps[0].new_empty(boxes_R4.shape[0], maps[0].shape[1], height, width)


def onnx_translations() -> dict[Callable, Callable]:
    """Return the operations in ONNX, as ``torch.onnx.export`` takes them."""
    return {
        torch.ops.mminline.suppress.default: _onnx_suppress,
        torch.ops.mminline.pool_regions.default: _onnx_pool_regions,
    }


def _onnx_suppress(boxes_N4, ranks_N, iou_threshold: float, most: int):
    from onnxscript import opset20 as op

    # ONNX names corners by row and column; the overlap is the same either way.
    chosen = op.NonMaxSuppression(
        op.Unsqueeze(boxes_N4, op.Constant(value_ints=[0])),
        op.Unsqueeze(ranks_N, op.Constant(value_ints=[0, 1])),
        op.Constant(value_ints=[most]),
        op.Constant(value_floats=[iou_threshold]),
        op.Constant(value_floats=[NO_RANK]),
    )
    # Rows of image, class and box.
    return op.Gather(chosen, op.Constant(value_int=2), axis=1)


def _onnx_pool_regions(
    maps, boxes_R4, levels_R, scales: Sequence[float],
    height: int, width: int, samples: int, aligned: bool,
):  # fmt: skip
    from onnxscript import opset20 as op

    regions, places = [], []
    for level, (features, scale) in enumerate(zip(maps, scales, strict=True)):
        here = op.Equal(levels_R, op.Constant(value_int=level))
        where = op.Squeeze(op.NonZero(here), op.Constant(value_ints=[0]))
        region = op.RoiAlign(
            features,
            op.Gather(boxes_R4, where, axis=0),
            op.Sub(where, where),  # all of image 0
            coordinate_transformation_mode='half_pixel' if aligned else 'output_half_pixel',
            mode='avg',
            output_height=height,
            output_width=width,
            sampling_ratio=samples,
            spatial_scale=scale,
        )
        regions.append(region)
        places.append(where)
    # Regions are in the order of their levels; the ranks of their places bring them back.
    places = op.Concat(*places, axis=0)
    _, ranks = op.TopK(places, op.Shape(places), axis=0, largest=0, sorted=1)
    return op.Gather(op.Concat(*regions, axis=0), ranks, axis=0)
