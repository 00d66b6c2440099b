"""Class of each pixel of a large image."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..execution import as_part_of
from ..execution.score_rows import from_scores
from .backbone import Report
from .errors import CannotCutError
from .halo import find_halo
from .image import ModelImage
from .pooling import WholePooling
from .tiles import Maps, Tile, split_image

# Scores on a GPU are resized and compared in pieces.
PIECE_BYTES = 16 << 20
PIECE_COLUMNS = 256


class TiledSegmentor:
    """Neck and decode head of a segmentor, tile by tile.

    Args:
        model: Segmentor of mmseg: ``decode_head``, and ``neck`` if ``with_neck``.
        maps: Maps of the backbone.
    """

    def __init__(self, model: nn.Module, maps: Maps) -> None:
        self.head = model.decode_head
        self.neck = model.neck if model.with_neck else None
        self.maps = maps
        # One byte for up to 256 classes.
        self.dtype = np.dtype(np.uint8 if self.head.num_classes <= 256 else np.uint16)
        self._pooling = {}
        names = dict(neck=self.neck, decode_head=self.head)
        self.modules = {name: module for name, module in names.items() if module is not None}
        if model.align_corners:
            raise CannotCutError(
                'the model cannot run in parts: it resizes its scores with align_corners, so '
                'what a pixel gets depends on the size of the whole image'
            )

    @property
    def result_bytes(self) -> int:
        """Memory for the result of a pixel, all at once."""
        return 8 * self.head.out_channels + 8

    def run(self, slices: list[Tensor], tile: Tile, maps: Maps) -> tuple[Tensor]:
        """Compute the scores of a tile, at the stride of the head."""
        if maps not in self._pooling:
            self._pooling[maps] = WholePooling(self.head, maps)
        as_part = as_part_of(maps.image_shape, tile.computed_shape)
        with self._pooling[maps].on_tile(tile, slices), as_part:
            return (self.head(self.neck(slices) if self.neck else slices),)

    def find_halo(self) -> int:
        """Find how many lines around a tile it has to see."""
        return find_halo(self.run, self.maps, self.modules)

    def classify(self, tile: Tile) -> np.ndarray:
        """Predict the class of each pixel of a tile."""
        (scores_1CHW,) = self.run(self.maps.slices(tile), tile, self.maps)
        if scores_1CHW.device.type == 'cpu':
            classes_HW = self._choose_by_rows(scores_1CHW[0], tile)
        else:
            classes_HW = self._choose_in_pieces(scores_1CHW, tile)
        return classes_HW.cpu().numpy().astype(self.dtype)

    def _choose_by_rows(self, scores_CHW: Tensor, tile: Tile) -> Tensor:
        """Resize and compare as the ordinary way does, bit by bit, one row at a time."""
        rows = from_scores(scores_CHW).resize(tile.computed_shape, False, self.maps.shape)
        rows = rows.crop(tile.rows.wanted(1), tile.columns.wanted(1))
        return rows.argmax() if len(scores_CHW) > 1 else self._choose(rows.stack())

    def _choose_in_pieces(self, scores_1CHW: Tensor, tile: Tile) -> Tensor:
        """Resize and compare on a GPU, where single rows would take longer to start than to run."""
        # With the classes of a pixel side by side, resizing and comparing is much faster.
        scores_1CHW = scores_1CHW.contiguous(memory_format=torch.channels_last)
        stride = (tile.rows.last - tile.rows.first) // scores_1CHW.shape[2]
        cells, columns = tile.rows.wanted(stride), tile.columns.wanted(stride)
        step = max(PIECE_BYTES // (PIECE_COLUMNS * stride**2 * scores_1CHW[..., 0, 0].nbytes), 1)
        rows = []
        for top in range(cells.start, cells.stop, step):
            row = slice(top, min(top + step, cells.stop))
            pieces = []
            for left in range(columns.start, columns.stop, PIECE_COLUMNS):
                column = slice(left, min(left + PIECE_COLUMNS, columns.stop))
                pieces.append(self._choose(self._resize(scores_1CHW, row, column, stride)))
            rows.append(torch.cat(pieces, dim=1).to(torch.int32))
        return torch.cat(rows)

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


def predict_bands(
    segmentor: TiledSegmentor,
    image: ModelImage,
    tile_shape: tuple[int, int],
    halo: int,
    report: Report,
) -> Iterator[np.ndarray]:
    """Give the class map in bands of rows, from top to bottom."""
    rows_of_tiles = list(split_image(image.padded_shape, tile_shape, halo, segmentor.maps.rows))
    total, done = sum(map(len, rows_of_tiles)), 0
    for tiles in rows_of_tiles:
        parts = []
        for tile in tiles:
            parts.append(segmentor.classify(tile))
            done += 1
            report('neck and head', done, total)
        band_HW = np.concatenate(parts, axis=1)
        rows = min(tiles[0].rows.stop, image.shape[0]) - tiles[0].rows.start
        if rows > 0:
            yield band_HW[:rows, : image.shape[1]]
