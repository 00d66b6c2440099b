"""How far neck and head look: measured on small maps, not taken from a table.

NaN passes through every layer, whatever its weights, so the cells that become NaN when one cell is
NaN are exactly those that depend on it. A layer that mixes the whole map makes all of them NaN.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .errors import CannotCutError
from .tiles import UNIT, Maps, Span, Tile, round_up, split_side

# From slices, their tile and the maps of the whole image to outputs that have to be cut.
Part = Callable[[list[Tensor], Tile, Maps], Sequence[Tensor]]

LENGTHS = (9, 17, 33, 65, 129)
WIDTH = 3
TOLERANCE = 1e-3


def find_halo(part: Part, maps: Maps, modules: dict[str, nn.Module]) -> int:
    """Find how many lines around a tile it has to see, or raise a ``CannotCutError``.

    Args:
        part: Neck and head, or as much of them as runs in tiles.
        maps: Maps of an image, for their channels.
        modules: The same as modules by name, for the message.
    """
    reach = 0
    for axis in (0, 1):
        reach = max(reach, _find_reach(part, maps, axis, modules))
    halo = round_up(reach)
    for axis in (0, 1):
        _check(part, maps, axis, halo, modules)
    return halo


def random_strip(like: Maps, length: int, axis: int) -> tuple[Maps, Tile]:
    """Random maps of a long and narrow image, and the tile that is all of it."""
    shape = tuple(UNIT * (length if axis == along else WIDTH) for along in (0, 1))
    generator = torch.Generator().manual_seed(0)
    parts = []
    for each, stride in zip(like.maps, like.strides, strict=True):
        size = (1, each.shape[1], shape[0] // stride, shape[1] // stride)
        parts.append(torch.randn(size, generator=generator).to(each))
    spans = [Span(0, side, 0, side) for side in shape]
    maps = Maps(parts, shape, like.strides, like.memory_format)
    maps.image_shape = like.image_shape
    return maps, Tile(*spans)


def _find_reach(part: Part, like: Maps, axis: int, modules: dict[str, nn.Module]) -> int:
    """Lines beside a unit whose outputs depend on it, in pixels."""
    for length in LENGTHS:
        maps, tile = random_strip(like, length, axis)
        start, stop = length // 2 * UNIT, (length // 2 + 1) * UNIT
        poisoned = maps.slices(tile)
        for index, stride in enumerate(maps.strides):
            poisoned[index] = poisoned[index].clone()
            cells = slice(start // stride, stop // stride)
            poisoned[index].narrow(2 + axis, cells.start, cells.stop - cells.start).fill_(torch.nan)
        ends = [_nan_lines(each, axis) for each in part(poisoned, tile, maps)]
        if all(first > 0 and last < count for first, last, count in ends):
            side = UNIT * length
            # One cell more than the dependency: outputs may be resized once more, to the image.
            return max(
                max(start - (first - 1) * side // count, (last + 1) * side // count - stop)
                for first, last, count in ends
            )
    raise CannotCutError(
        'the model cannot run in parts: what it predicts for a pixel depends on the whole map, '
        f'because of {_find_mixer(part, poisoned, tile, maps, axis, modules)}'
    )


def _nan_lines(output: Tensor, axis: int) -> tuple[int, int, int]:
    """First NaN line along an axis, the one behind the last, and the number of lines."""
    lines = output.isnan().transpose(-2 + axis, 0).flatten(1).any(dim=1)
    found = lines.nonzero().flatten()
    if not len(found):
        return len(lines) // 2, len(lines) // 2, len(lines)
    return int(found[0]), int(found[-1]) + 1, len(lines)


def _find_mixer(
    part: Part,
    poisoned: list[Tensor],
    tile: Tile,
    maps: Maps,
    axis: int,
    modules: dict[str, nn.Module],
) -> str:
    """Name the first layer that spreads NaN from a part of its input over all of its output."""
    found, handles = [], []

    def look(name: str, module: nn.Module, inputs: tuple, output: Tensor) -> None:
        if not inputs or not all(isinstance(each, Tensor) for each in (inputs[0], output)):
            return
        if output.isnan().all() and not inputs[0].isnan().all():
            found.append(f'{name} ({type(module).__name__})')

    for prefix, root in modules.items():
        for name, module in root.named_modules(prefix=prefix):
            if not any(module.children()):
                handles.append(
                    module.register_forward_hook(
                        lambda module, inputs, output, name=name: look(name, module, inputs, output)
                    )
                )
    try:
        part(poisoned, tile, maps)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else 'a step between its layers'


def _check(part: Part, like: Maps, axis: int, halo: int, modules: dict[str, nn.Module]) -> None:
    """Compare the outputs on two halves with those on the whole.

    This finds what no dependency shows: layers whose result depends on where a cell is, such as
    resizing with ``align_corners``.
    """
    length = 2 * (halo // UNIT) + 4
    maps, tile = random_strip(like, length, axis)
    whole = part(maps.slices(tile), tile, maps)
    side = UNIT * length
    for span in split_side(side, side // 2, halo):
        half = Tile(span, tile.columns) if axis == 0 else Tile(tile.rows, span)
        for cut, expected in zip(part(maps.slices(half), half, maps), whole, strict=True):
            stride = side // expected.shape[-2 + axis]
            cells = slice(span.start // stride, span.stop // stride)
            expected = expected.narrow(-2 + axis, cells.start, cells.stop - cells.start)
            error = (half.crop(cut, stride) - expected).abs().max()
            if not error <= TOLERANCE * expected.abs().max():
                raise CannotCutError(
                    f'the model cannot run in parts: {" and ".join(modules)} give other values on '
                    'a part of the map than on the whole, as resizing with align_corners does'
                )
