"""Maps of a whole image by the backbone, without the image as one tensor."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .. import execution
from ..layers.statistics import full_precision
from ..models.backbones.pyramid import PyramidBackbone, smallest_side
from ..models.backbones.stage import Stage, to_map
from .errors import CannotCutError
from .image import ModelImage
from .tiles import UNIT, Maps

Report = Callable[[str, int, int], None]


def compute_maps(backbone: nn.Module, image: ModelImage, report: Report) -> Maps:
    """Run the backbone on a whole image.

    A backbone of this project reads the image in bands; its blocks run as ever. Another one gets
    the padded image as one tensor.
    """
    height, width = image.padded_shape
    if _is_ours(backbone):
        return Maps(_run_stages(backbone, image, report), image.padded_shape, backbone.strides)
    maps = backbone(image.rows(0, height))
    report('backbone', 1, 1)
    strides = [height // each.shape[2] for each in maps]
    for each, stride in zip(maps, strides, strict=True):
        if UNIT % stride or tuple(each.shape[2:]) != (height // stride, width // stride):
            raise CannotCutError(
                f'maps have to have a stride that divides {UNIT}, and the backbone gives one of '
                f'{tuple(each.shape[2:])} cells for {height} x {width} px'
            )
    return Maps(maps, image.padded_shape, strides)


def _is_ours(backbone: nn.Module) -> bool:
    return (
        isinstance(backbone, PyramidBackbone)
        and type(backbone).forward is PyramidBackbone.forward
        and not backbone._forward_hooks
        and not backbone._forward_pre_hooks
    )


def _run_stages(backbone: PyramidBackbone, image: ModelImage, report: Report) -> list[Tensor]:
    """Compute the maps of all outputs at the size of the image without padding."""
    height, width = image.padded_shape
    if backbone.ignore_padding:
        smallest = smallest_side(len(backbone.stages))
        height, width = image.find_size(backbone.pad_value, smallest)
    stages = backbone.stages[: backbone.out_indices[-1] + 1]
    total, done = sum(len(stage.blocks) for stage in stages), 0
    outputs = []

    def read(top: int, bottom: int) -> Tensor:
        return image.rows(top, min(bottom, height), width)

    patch = 4
    for index, stage in enumerate(stages):
        x_BLC, hw_shape = _embed(stage, read, (height, width), patch)
        for block in stage.blocks:
            x_BLC = execution.run(block, x_BLC, hw_shape, stage.streaming)
            done += 1
            report('backbone', done, total)
        map_BCHW = to_map(x_BLC, hw_shape)
        if index in backbone.out_indices:
            outputs.append(to_map(backbone.output_norm(x_BLC, index), hw_shape))

        def read(top: int, bottom: int, map_BCHW: Tensor = map_BCHW) -> Tensor:
            return map_BCHW[:, :, top:bottom]

        (height, width), patch = hw_shape, 2
    return outputs


def _embed(
    stage: Stage, read: Callable[[int, int], Tensor], shape: tuple[int, int], patch: int
) -> tuple[Tensor, tuple[int, int]]:
    """Make the tokens of a stage in bands of rows: patches do not overlap."""
    hw_shape = tuple(-(-side // patch) for side in shape)
    height, width = hw_shape
    band = max((1 << 20) // width, 1)
    position = _Position(stage.pos_embed, hw_shape)
    x_BLC = None
    for top in range(0, height, band):
        bottom = min(top + band, height)
        tokens_BLC, _ = stage.embed(read(top * patch, bottom * patch))
        if x_BLC is None:
            x_BLC = tokens_BLC.new_empty(1, height * width, tokens_BLC.shape[2])
        x_BLC[:, top * width : bottom * width] = position.add(tokens_BLC, top, bottom)
    return stage.drop(x_BLC), hw_shape


class _Position:
    """Position embedding of a stage, resized in bands of rows.

    Resizing is separable: the rows of the whole grid first, which are few numbers, then the
    columns of a band.
    """

    def __init__(self, position_1HWC: Tensor | None, hw_shape: tuple[int, int]) -> None:
        self.rows_1CHW = None
        self.width = hw_shape[1]
        if position_1HWC is not None:
            self.rows_1CHW = self._resize(
                position_1HWC.permute(0, 3, 1, 2), (hw_shape[0], position_1HWC.shape[2])
            )

    def add(self, tokens_BLC: Tensor, top: int, bottom: int) -> Tensor:
        """Add the embedding of rows ``[top, bottom)`` of the grid."""
        if self.rows_1CHW is None:
            return tokens_BLC
        band = self._resize(self.rows_1CHW[:, :, top:bottom], (bottom - top, self.width))
        return tokens_BLC + band.permute(0, 2, 3, 1).flatten(1, 2)

    @staticmethod
    def _resize(map_1CHW: Tensor, shape: tuple[int, int]) -> Tensor:
        with full_precision(map_1CHW):
            return F.interpolate(map_1CHW, shape, mode='bilinear', align_corners=False)
