"""Class of each pixel of a large image."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .backbone import Report
from .errors import CannotCutError
from .halo import find_halo
from .image import ModelImage
from .pooling import WholePooling
from .tiles import Maps, Tile, split_image

# Scores of an image are resized and compared in pieces of this size.
PIECE_BYTES = 32 << 20


class TiledSegmentor:
    """Neck and decode head of a segmentor, tile by tile.

    Args:
        model: Segmentor of mmseg: ``decode_head``, and ``neck`` if ``with_neck``.
        maps: Maps of the backbone.
    """

    def __init__(self, model: nn.Module, maps: Maps) -> None:
        self.head = model.decode_head
        self.neck = model.neck if model.with_neck else None
        self.align_corners = model.align_corners
        self.maps = maps
        self._pooling = {}
        names = dict(neck=self.neck, decode_head=self.head)
        self.modules = {name: module for name, module in names.items() if module is not None}
        if self.align_corners:
            raise CannotCutError(
                'the model cannot run in parts: it resizes its scores with align_corners, so '
                'what a pixel gets depends on the size of the whole image'
            )

    def run(self, slices: list[Tensor], tile: Tile, maps: Maps) -> tuple[Tensor]:
        """Compute the scores of a tile, at the stride of the head."""
        if maps not in self._pooling:
            self._pooling[maps] = WholePooling(self.head, maps)
        with self._pooling[maps].on_tile(tile, slices):
            return (self.head(self.neck(slices) if self.neck else slices),)

    def find_halo(self) -> int:
        """Find how many lines around a tile it has to see."""
        return find_halo(self.run, self.maps, self.modules)

    def classify(self, tile: Tile) -> np.ndarray:
        """Predict the class of each pixel of a tile."""
        (scores_1CHW,) = self.run(self.maps.slices(tile), tile, self.maps)
        # With the classes of a pixel side by side, resizing and comparing is much faster.
        scores_1CHW = scores_1CHW.contiguous(memory_format=torch.channels_last)
        stride = (tile.rows.last - tile.rows.first) // scores_1CHW.shape[2]
        cells, columns = tile.rows.wanted(stride), tile.columns.wanted(stride)
        row_bytes = stride**2 * scores_1CHW[:, :, 0].nbytes
        step = max(PIECE_BYTES // row_bytes, 1)
        pieces = []
        for top in range(cells.start, cells.stop, step):
            bottom = min(top + step, cells.stop)
            resized = self._resize(scores_1CHW, slice(top, bottom), columns, stride)
            pieces.append(self._choose(resized).cpu().numpy())
        return np.concatenate(pieces)

    def _resize(self, scores_1CHW: Tensor, rows: slice, columns: slice, stride: int) -> Tensor:
        """Resize cells to pixels: with their neighbours, which are cut off afterwards."""
        height, width = scores_1CHW.shape[2:]
        around = [
            slice(max(cells.start - 1, 0), min(cells.stop + 1, count))
            for cells, count in ((rows, height), (columns, width))
        ]
        part = scores_1CHW[:, :, around[0], around[1]]
        size = [stride * side for side in part.shape[2:]]
        part = F.interpolate(part, size, mode='bilinear', align_corners=False)
        wanted = [
            slice(stride * (cells.start - each.start), stride * (cells.stop - each.start))
            for cells, each in zip((rows, columns), around, strict=True)
        ]
        return part[0, :, wanted[0], wanted[1]]

    def _choose(self, scores_CHW: Tensor) -> Tensor:
        """Choose the class with the highest score, or compare the only one with the threshold."""
        if len(scores_CHW) > 1:
            return scores_CHW.argmax(dim=0)
        return scores_CHW[0].sigmoid() > self.head.threshold


def class_type(model: nn.Module) -> np.dtype:
    """Type of a class map: one byte for up to 256 classes."""
    return np.dtype(np.uint8 if model.decode_head.num_classes <= 256 else np.uint16)


def predict_bands(
    segmentor: TiledSegmentor,
    image: ModelImage,
    tile_shape: tuple[int, int],
    halo: int,
    dtype: np.dtype,
    report: Report,
) -> Iterator[np.ndarray]:
    """Give the class map in bands of rows, from top to bottom."""
    rows_of_tiles = list(split_image(image.padded_shape, tile_shape, halo, segmentor.maps.rows))
    total, done = sum(map(len, rows_of_tiles)), 0
    for tiles in rows_of_tiles:
        parts = []
        for tile in tiles:
            parts.append(segmentor.classify(tile).astype(dtype))
            done += 1
            report('neck and head', done, total)
        band_HW = np.concatenate(parts, axis=1)
        rows = min(tiles[0].rows.stop, image.shape[0]) - tiles[0].rows.start
        if rows > 0:
            yield band_HW[:rows, : image.shape[1]]
