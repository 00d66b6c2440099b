"""Instances of a large image."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from mmengine.structures import BaseDataElement, InstanceData
from torch import Tensor, nn

from ..execution import as_part_of
from ..replaced import replaced
from .backbone import Report
from .candidates import Candidates, choose_boxes
from .detector_parts import check_parts, region_parts
from .errors import CannotCutError
from .halo import TOLERANCE, find_halo, random_strip
from .masks import paste_as_runs
from .region_pool import RegionPool
from .tiles import UNIT, Maps, Tile, split_image


class TiledDetector:
    """Neck and heads of a detector: fine levels tile by tile, coarse ones whole.

    Args:
        model: One-stage (``bbox_head``) or two-stage detector (``rpn_head``, ``roi_head``).
        maps: Maps of the backbone.
    """

    def __init__(self, model: nn.Module, maps: Maps) -> None:
        self.roi_head = getattr(model, 'roi_head', None)
        name = 'bbox_head' if self.roi_head is None else 'rpn_head'
        self.head = getattr(model, name, None)
        self.neck = getattr(model, 'neck', None)
        self.maps = maps
        self.modules = {'neck': self.neck, name: self.head}
        check_parts(model, self.modules)
        self.strides = [stride[0] for stride in self.head.prior_generator.strides]
        self.num_fine = sum(stride < UNIT for stride in self.strides)
        self.extractors, self.mask_heads = region_parts(self.roi_head)

    @property
    def result_bytes(self) -> int:
        """Memory for the result of a pixel, all at once."""
        return self.roi_head.test_cfg.max_per_img if self.mask_heads else 0

    def run(self, slices: list[Tensor], tile: Tile, maps: Maps) -> list[Tensor]:
        """Compute the outputs of the dense head for the fine levels of a tile."""
        with as_part_of(maps.image_shape, tile.computed_shape):
            outputs = self.head(self.neck(slices))
        return [each for kind in outputs for each in kind[: self.num_fine]]

    def find_halo(self) -> int:
        """Find how many lines around a tile it has to see."""
        self._check_coarse()
        return find_halo(self.run, self.maps, self.modules)

    def coarse_levels(self, maps: Maps) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Maps of the coarse levels and outputs of the dense head for them, whole.

        Coarse levels of a pyramid depend on coarse maps only. A single cell stands for each
        fine one. Of several processes, the first has them.
        """
        inputs = [
            maps.whole(index, everywhere=False)
            if stride >= UNIT
            else each.new_zeros(1, each.shape[1], 1, 1)
            for index, (stride, each) in enumerate(zip(maps.strides, maps.maps, strict=True))
        ]
        if not maps.team.is_first:
            return [], []
        with as_part_of(maps.image_shape, maps.shape):
            pyramid = self.neck(inputs)
            outputs = self.head(pyramid)
        return list(pyramid[self.num_fine :]), [kind[self.num_fine :] for kind in outputs]

    def _check_coarse(self) -> None:
        """Compare coarse levels computed from coarse maps alone with those of all maps."""
        maps, tile = random_strip(self.maps, 5, axis=0)
        expected = self.head(self.neck(maps.slices(tile)))
        try:
            _, outputs = self.coarse_levels(maps)
            same = all(
                (each - whole).abs().max() <= TOLERANCE * whole.abs().max()
                for kinds, wholes in zip(outputs, expected, strict=True)
                for each, whole in zip(kinds, wholes[self.num_fine :], strict=True)
            )
        except RuntimeError:  # shapes that do not fit together
            same = False
        if not same:
            raise CannotCutError(
                'the model cannot run in parts: the coarse levels of its neck depend on fine maps'
            )

    def predict(
        self,
        shape: tuple[int, int],
        tile_shape: tuple[int, int],
        halo: int,
        report: Report,
    ) -> InstanceData | None:
        """Detect the instances of an image of height and width ``shape``.

        Of several processes that share it, the first has them, and the others None.
        """
        meta = dict(
            img_shape=shape,
            ori_shape=shape,
            pad_shape=self.maps.shape,
            batch_input_shape=self.maps.shape,
            scale_factor=(1.0, 1.0),
        )
        rows_of_tiles = split_image(self.maps.shape, tile_shape, halo, self.maps.rows)
        tiles = [tile for row in rows_of_tiles for tile in row]
        coarse, outputs = self.coarse_levels(self.maps)
        boxes = self._choose_boxes(outputs, tiles, meta, report)
        if self.roi_head is None:
            return boxes
        source = partial(self._fine_maps, tiles, report)
        regions = RegionPool(self.extractors, self.maps, self.num_fine, source)
        if not self.maps.team.is_first:
            return regions.assist()
        sample = BaseDataElement(metainfo=meta)
        with regions.replace_extractors(coarse), self._masks_as_runs():
            (instances,) = self.roi_head.predict(
                self._placeholders(coarse), [boxes], [sample], rescale=True
            )
        if self.mask_heads and not len(instances):
            instances.masks = []
        return instances

    def _choose_boxes(
        self, outputs: list[list[Tensor]], tiles: list[Tile], meta: dict, report: Report
    ) -> InstanceData | None:
        levels = [
            Candidates(self.head, level, tuple(side // stride for side in self.maps.shape))
            for level, stride in enumerate(self.strides[: self.num_fine])
        ]
        for number, tile in enumerate(tiles):
            found = self.run(self.maps.slices(tile), tile, self.maps)
            for level, stride in zip(levels, self.strides, strict=False):
                cut = [tile.crop(each, stride) for each in found[level.level :: self.num_fine]]
                level.add(cut, tile, stride)
            report('neck and dense head', number + 1, len(tiles))
        shares = self.maps.team.gather([level.kept() for level in levels])
        if shares is None:
            return None
        for share in shares[1:]:
            for level, kept in zip(levels, share, strict=True):
                level.merge(*kept)
        for kinds in zip(*outputs, strict=True):
            levels.append(Candidates(self.head, len(levels), tuple(kinds[0].shape[2:])))
            levels[-1].add_whole(kinds)
        return choose_boxes(self.head, levels, meta, rescale=self.roi_head is None)

    def _fine_maps(
        self, tiles: list[Tile], report: Report, is_needed: Callable[[Tile], bool]
    ) -> Iterator[tuple[Tile, list[Tensor]]]:
        """Compute the fine levels of the pyramid again, tile by tile."""
        needed = [tile for tile in tiles if is_needed(tile)]
        for number, tile in enumerate(needed):
            with as_part_of(self.maps.image_shape, tile.computed_shape):
                pyramid = self.neck(self.maps.slices(tile))
            yield tile, list(pyramid[: self.num_fine])
            report('regions', number + 1, len(needed))

    def _placeholders(self, coarse: list[Tensor]) -> tuple[Tensor, ...]:
        """Stand-ins for the pyramid, of which the head of regions sees pooled parts only."""
        nothing = torch.full_like(coarse[0][:, :, :1, :1], torch.nan)
        return (nothing,) * (self.num_fine + len(coarse))

    @contextlib.contextmanager
    def _masks_as_runs(self) -> Iterator[None]:
        """Let masks be pasted as run lengths."""
        with contextlib.ExitStack() as stack:
            for head in self.mask_heads:
                paste = partial(paste_as_runs, head._predict_by_feat_single)
                stack.enter_context(replaced(head, '_predict_by_feat_single', paste))
            yield
