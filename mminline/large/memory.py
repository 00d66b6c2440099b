"""Memory: how much a tile takes, and the tiles that follow from it."""

import math
import weakref
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from ..execution.slabs import count_processes
from .free_memory import free_bytes
from .halo import Part, random_strip
from .tiles import UNIT, Maps

if TYPE_CHECKING:
    from .detector import TiledDetector
    from .segmentor import TiledSegmentor

TILE_BYTES = 2_500_000_000
PROBE_LENGTH = 12


class PeakBytes(TorchDispatchMode):
    """Count the bytes of the tensors that are made in its context, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._live = 0
        self._known = weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        given = {id(each.untyped_storage()) for each in _tensors((args, kwargs))}
        for each in _tensors(output):
            storage = each.untyped_storage()
            if id(storage) not in given and storage not in self._known:
                self._add(storage)
        return output

    def _add(self, storage: torch.UntypedStorage) -> None:
        self._known.add(storage)
        self._live += storage.nbytes()
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._release, storage.nbytes())

    def _release(self, size: int) -> None:
        self._live -= size


def _tensors(tree: object) -> list[Tensor]:
    return [each for each in tree_iter(tree) if isinstance(each, Tensor)]


def bytes_per_pixel(part: Part, maps: Maps) -> float:
    """Measure what a part of the model needs for a pixel of a tile, on a small one."""
    strip, tile = random_strip(maps, PROBE_LENGTH, axis=0)
    with PeakBytes() as counted:
        part([each.clone() for each in strip.slices(tile)], tile, strip)
    return counted.peak / math.prod(strip.shape)


def ordinary_bytes(tiled: 'TiledSegmentor | TiledDetector', maps: Maps, pixels: int) -> float:
    """Estimate what a model needs for an image at once.

    That is the image and its normalised copy, the maps, neck and head, and the result: for each
    pixel of the image two sets of scores (mmseg resizes them twice), or a bit of each mask.

    Args:
        tiled: The model.
        maps: Maps of a small image.
        pixels: Size of the image.
    """
    maps_bytes = sum(each.nbytes for each in maps.maps) / math.prod(maps.shape)
    part_bytes = bytes_per_pixel(tiled.run, maps)
    return pixels * (27 + maps_bytes + part_bytes + tiled.result_bytes)


def choose_tile_shape(
    shape: tuple[int, int], halo: int, pixel_bytes: float, budget: int
) -> tuple[int, int]:
    """Choose tiles that stay within a budget, nearly square: the least that is computed twice.

    Args:
        shape: Height and width of the image.
        halo: Lines around a tile that are computed too.
        pixel_bytes: Memory for each pixel of a tile.
        budget: Memory for a tile.
    """
    pixels = budget / pixel_bytes
    least = 4 * UNIT
    columns = min(shape[1], max(int(math.sqrt(pixels)) - 2 * halo, least))
    computed = min(shape[1], columns + 2 * halo)
    rows = min(shape[0], max(int(pixels / computed) - 2 * halo, least))
    return rows, columns


def tile_budget(device: torch.device) -> int:
    """Memory for a tile: 2.5 GB or half of what is free, for all processes that share an image."""
    return min(TILE_BYTES, free_bytes(device) // 2) // count_processes()
