"""From a map to the tokens of a stage, in inference on a CPU in bands of rows.

Patches do not overlap, so a band stays on one core up to its tokens with their positions. Threads
that share an operation wait actively for the next one, and keep the cores from the blocks' bands.
"""

import torch
from torch import Tensor, nn

from ..layers import PatchEmbed, PatchMerging, resize_columns, resize_rows
from ..layers.as_built import find_change, find_oddity
from . import cache
from .decision import autocasts, is_forced_plain, is_recording, is_unwatched_inference
from .slabs import SlabShape, resize_position
from .threads import call_on_one_core, count_band_threads, cut_range, map_bands

# They see nothing of a map but one patch at a time, and neither do their parts as built.
_EMBEDDINGS = (PatchEmbed, PatchMerging)
_FORWARD = {
    kind: kind.forward for kind in (*_EMBEDDINGS, nn.Conv2d, nn.LayerNorm, nn.Linear, nn.Identity)
}

# Smaller maps get another kernel, which rounds differently.
FEWEST_VALUES = 2**16


def run(
    embed: nn.Module,
    map_BCHW: Tensor,
    position_1HWC: Tensor | None = None,
    slab: SlabShape | None = None,
    streaming: bool | None = None,
) -> tuple[Tensor, tuple[int, int]]:
    """Make tokens, under autocast in the type of the weights: blocks add to them.

    Args:
        embed: Embedding, called as ``embed(map_BCHW)``.
        map_BCHW: Map.
        position_1HWC: Position embedding to add, resized to the grid.
        slab: The grid, if it is a part of a larger one.
        streaming: False to run at once.

    Returns:
        Tokens, and the shape of their grid.
    """
    if streaming is not False and _suits_bands(embed, map_BCHW, position_1HWC):
        return _run_in_bands(embed, map_BCHW, position_1HWC, slab)
    x_BLC, hw_shape = embed(map_BCHW, **(dict(always_pad=True) if is_recording() else {}))
    hw_shape = hw_shape if slab is None else slab
    weight = next(embed.parameters(), None)
    if weight is not None and autocasts(x_BLC):
        x_BLC = x_BLC.to(torch.promote_types(x_BLC.dtype, weight.dtype))
    if position_1HWC is not None:
        x_BLC = x_BLC + resize_position(position_1HWC, hw_shape)
    return x_BLC, hw_shape


def is_known(embed: nn.Module) -> bool:
    """Whether an embedding is one of ours, as it was built."""
    return type(embed) in _EMBEDDINGS and all(_is_as_built(part, embed) for part in embed.modules())


def _is_as_built(part: nn.Module, embed: nn.Module) -> bool:
    kind = type(part)
    if kind not in _FORWARD or kind.forward is not _FORWARD[kind]:
        return False
    if find_change(part, kind, ('forward',)):
        return False
    if kind is not nn.Conv2d:
        return True
    patch = (embed.patch_size,) * 2
    found = part.kernel_size, part.stride, part.padding, part.dilation
    return found == (patch, patch, (0, 0), (1, 1))


def _suits_bands(embed: nn.Module, map_BCHW: Tensor, position_1HWC: Tensor | None) -> bool:
    if not is_unwatched_inference(map_BCHW) or is_forced_plain() or not is_known(embed):
        return False
    tensors = [map_BCHW, *embed.parameters()]
    if position_1HWC is not None:
        tensors.append(position_1HWC)
    return not any(map(find_oddity, tensors)) and len({each.dtype for each in tensors}) == 1


def _run_in_bands(
    embed: nn.Module, map_BCHW: Tensor, position_1HWC: Tensor | None, slab: SlabShape | None
) -> tuple[Tensor, tuple[int, int]]:
    batch, _, *sides = map_BCHW.shape
    patch = embed.patch_size
    hw_shape = tuple(-(-side // patch) for side in sides) if slab is None else slab
    height, width = hw_shape
    num_threads = count_band_threads(map_BCHW.device)
    row_values = -(-map_BCHW.numel() // height)
    row_bytes = row_values * map_BCHW.element_size()
    most_rows = max(cache.band_bytes(map_BCHW.device.type) // row_bytes, 1)
    fewest_rows = -(-batch * FEWEST_VALUES // row_values)
    bands = cut_range(height, most_rows, num_threads, fewest_rows)
    last = embed.proj if type(embed) is PatchEmbed else embed.reduction
    x_BLC = map_BCHW.new_empty(batch, height * width, len(last.weight))
    positions_1HWC = None
    if position_1HWC is not None:
        top, whole_height = (0, height) if slab is None else (slab.top, slab.whole[0])
        positions_1HWC = call_on_one_core(
            lambda: resize_rows(position_1HWC, whole_height)[:, top : top + height], num_threads
        )

    def run_band(rows: range) -> None:
        part_BLC = x_BLC[:, rows.start * width : rows.stop * width]
        tokens_BLC, _ = embed(map_BCHW[:, :, rows.start * patch : rows.stop * patch])
        if positions_1HWC is None:
            part_BLC.copy_(tokens_BLC)
        else:
            own_1HWC = resize_columns(positions_1HWC[:, rows.start : rows.stop], width)
            torch.add(tokens_BLC, own_1HWC.flatten(1, 2), out=part_BLC)

    map_bands(run_band, bands, num_threads)
    return x_BLC, hw_shape
