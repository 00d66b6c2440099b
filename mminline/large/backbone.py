"""Maps of a whole image by the backbone, without the image as one tensor."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from .. import execution
from ..execution.slabs import SlabShape, cut_evenly, is_parallel, resize_position
from ..layers.as_built import find_change
from ..models.backbones.pyramid_backbone import PyramidBackbone
from ..models.backbones.stage import Stage, to_map
from .errors import CannotCutError
from .image import ModelImage
from .shared import SlabMaps
from .tiles import UNIT, Maps

Report = Callable[[str, int, int], None]


def compute_maps(backbone: nn.Module, image: ModelImage, report: Report) -> Maps:
    """Run the backbone on a whole image.

    A backbone of this project reads the image in bands; its blocks run as ever. Another one gets
    the padded image as one tensor. Processes that share the image have a slab of rows each.
    """
    height, width = image.padded_shape
    if _is_ours(backbone):
        size = _find_size(backbone, image)
        slab = cut_evenly(*size)
        maps = _run_stages(backbone, image, slab or size, report)
        if slab is not None:
            return SlabMaps(
                maps, image.padded_shape, backbone.strides, slab, backbone.memory_format
            )
        return Maps(maps, image.padded_shape, backbone.strides, backbone.memory_format)
    if is_parallel():
        raise CannotCutError(
            f'{type(backbone).__name__} cannot run over several processes: InLinePVT and '
            'InLineSwin can, as they were built'
        )
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
        and find_change(backbone, type(backbone), ('forward',)) is None
        # Their parts are called one by one, so hooks on them would not run.
        and not any(find_change(stage, Stage, ('forward',)) for stage in backbone.stages)
    )


def _find_size(backbone: PyramidBackbone, image: ModelImage) -> tuple[int, int]:
    """Height and width that the backbone looks at."""
    if not backbone.ignore_padding:
        return image.padded_shape
    return image.find_size(backbone.pad_value, backbone.smallest_side)


def _run_stages(
    backbone: PyramidBackbone, image: ModelImage, shape: tuple[int, int], report: Report
) -> list[Tensor]:
    """Compute the maps of all outputs at the size of the image without padding.

    Args:
        backbone: The backbone.
        image: The image.
        shape: Height and width without padding; a ``SlabShape`` for the own rows of it.
        report: Called after each block.
    """
    stages = backbone.stages[: backbone.out_indices[-1] + 1]
    total, done = sum(len(stage.blocks) for stage in stages), 0
    outputs = []

    def read(top: int, bottom: int) -> Tensor:
        first = shape.top if isinstance(shape, SlabShape) else 0
        return image.rows(first + top, first + min(bottom, shape[0]), shape[1])

    hw_shape, patch = shape, 4
    for index, stage in enumerate(stages):
        x_BLC, hw_shape = _embed(stage, read, hw_shape, patch)
        read = None  # with it go the tokens of the stage before
        for block in stage.blocks:
            x_BLC = execution.run(block, x_BLC, hw_shape, stage.streaming)
            done += 1
            report('backbone', done, total)
        if index in backbone.out_indices:
            outputs.append(to_map(backbone.output_norm(x_BLC, index), hw_shape))
        read = partial(_cut_rows, to_map(x_BLC, hw_shape))
        patch = 2
    return outputs


def _cut_rows(map_BCHW: Tensor, top: int, bottom: int) -> Tensor:
    return map_BCHW[:, :, top:bottom]


def _embed(
    stage: Stage, read: Callable[[int, int], Tensor], shape: tuple[int, int], patch: int
) -> tuple[Tensor, tuple[int, int]]:
    """Make the tokens of a stage in bands of rows: patches do not overlap."""
    is_slab = isinstance(shape, SlabShape)
    hw_shape = shape.at_stride(patch) if is_slab else tuple(-(-side // patch) for side in shape)
    height, width = hw_shape
    band = max((1 << 20) // width, 1)
    x_BLC = None
    for top in range(0, height, band):
        bottom = min(top + band, height)
        rows_BCHW = read(top * patch, bottom * patch)
        tokens_BLC, _ = execution.embed(stage.embed, rows_BCHW, streaming=stage.streaming)
        if x_BLC is None:
            x_BLC = tokens_BLC.new_empty(1, height * width, tokens_BLC.shape[2])
        x_BLC[:, top * width : bottom * width] = tokens_BLC
    if stage.pos_embed is not None:
        # At once: a block needs as much memory, for its input and its output.
        x_BLC += resize_position(stage.pos_embed, hw_shape)
    return stage.drop(x_BLC), hw_shape
