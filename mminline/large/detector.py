"""Instances of a large image."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from mmengine.structures import BaseDataElement, InstanceData
from torch import Tensor, nn

from .backbone import Report
from .candidates import Candidates, choose_boxes
from .errors import CannotCutError
from .halo import TOLERANCE, find_halo, random_strip
from .masks import paste_as_runs
from .regions import check_extractor, pool_regions
from .replaced import replaced
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
        _check_parts(model, self.modules)
        self.strides = [stride[0] for stride in self.head.prior_generator.strides]
        self.num_fine = sum(stride < UNIT for stride in self.strides)
        self.extractors, self.mask_heads = _region_parts(self.roi_head)
        self._pooled = None

    @property
    def result_bytes(self) -> int:
        """Memory for the result of a pixel, all at once."""
        return self.roi_head.test_cfg.max_per_img if self.mask_heads else 0

    def run(self, slices: list[Tensor], tile: Tile, maps: Maps) -> list[Tensor]:
        """Compute the outputs of the dense head for the fine levels of a tile."""
        outputs = self.head(self.neck(slices))
        return [each for kind in outputs for each in kind[: self.num_fine]]

    def find_halo(self) -> int:
        """Find how many lines around a tile it has to see."""
        self._check_coarse()
        return find_halo(self.run, self.maps, self.modules)

    def coarse_levels(self, maps: Maps) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Maps of the coarse levels and outputs of the dense head for them, whole.

        Coarse levels of a pyramid depend on coarse maps only. A single cell stands for each
        fine one.
        """
        inputs = [
            maps.whole(index) if stride >= UNIT else maps.maps[index].new_zeros(1, channels, 1, 1)
            for index, (stride, channels) in enumerate(
                zip(maps.strides, (each.shape[1] for each in maps.maps), strict=True)
            )
        ]
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
    ) -> InstanceData:
        """Detect the instances of an image of height and width ``shape``."""
        meta = dict(
            img_shape=shape,
            ori_shape=shape,
            pad_shape=self.maps.shape,
            batch_input_shape=self.maps.shape,
            scale_factor=(1.0, 1.0),
        )
        tiles = [tile for row in split_image(self.maps.shape, tile_shape, halo) for tile in row]
        coarse, outputs = self.coarse_levels(self.maps)
        boxes = self._choose_boxes(outputs, tiles, meta, report)
        if self.roi_head is None:
            return boxes
        source = partial(self._fine_maps, tiles, report)
        sample = BaseDataElement(metainfo=meta)
        with self._in_tiles(coarse, source):
            (instances,) = self.roi_head.predict(
                self._placeholders(coarse), [boxes], [sample], rescale=True
            )
        if self.mask_heads and not len(instances):
            instances.masks = []
        return instances

    def _choose_boxes(
        self, outputs: list[list[Tensor]], tiles: list[Tile], meta: dict, report: Report
    ) -> InstanceData:
        sizes = [tuple(side // stride for side in self.maps.shape) for stride in self.strides]
        sizes[self.num_fine :] = [tuple(each.shape[2:]) for each in outputs[0]]
        levels = [Candidates(self.head, level, size) for level, size in enumerate(sizes)]
        for number, tile in enumerate(tiles):
            found = self.run(self.maps.slices(tile), tile, self.maps)
            for level in range(self.num_fine):
                stride = self.strides[level]
                cut = [tile.crop(each, stride) for each in found[level :: self.num_fine]]
                levels[level].add(cut, tile, stride)
            report('neck and dense head', number + 1, len(tiles))
        for level in range(self.num_fine, len(levels)):
            levels[level].add_whole([kind[level - self.num_fine] for kind in outputs])
        return choose_boxes(self.head, levels, meta, rescale=self.roi_head is None)

    def _fine_maps(
        self, tiles: list[Tile], report: Report, is_needed: Callable[[Tile], bool]
    ) -> Iterator[tuple[Tile, list[Tensor]]]:
        """Compute the fine levels of the pyramid again, tile by tile."""
        needed = [tile for tile in tiles if is_needed(tile)]
        for number, tile in enumerate(needed):
            yield tile, list(self.neck(self.maps.slices(tile))[: self.num_fine])
            report('regions', number + 1, len(needed))

    def _placeholders(self, coarse: list[Tensor]) -> tuple[Tensor, ...]:
        """Stand-ins for the pyramid, of which the head of regions sees pooled parts only."""
        nothing = torch.full_like(coarse[0][:, :, :1, :1], torch.nan)
        return (nothing,) * (self.num_fine + len(coarse))

    @contextlib.contextmanager
    def _in_tiles(self, coarse: list[Tensor], source: Callable) -> Iterator[None]:
        """Let regions be pooled from tiles, and masks be pasted as run lengths."""
        with contextlib.ExitStack() as stack:
            for extractor in self.extractors:
                pool = partial(self._pool, extractor, coarse, source)
                stack.enter_context(replaced(extractor, 'forward', pool))
            for head in self.mask_heads:
                paste = partial(paste_as_runs, head._predict_by_feat_single)
                stack.enter_context(replaced(head, '_predict_by_feat_single', paste))
            yield

    def _pool(
        self,
        extractor: nn.Module,
        coarse: list[Tensor],
        source: Callable,
        feats: tuple[Tensor, ...],
        rois: Tensor,
        roi_scale_factor: float | None = None,
    ) -> Tensor:
        if roi_scale_factor is not None:
            raise CannotCutError('the model cannot run in parts: it rescales its regions')
        # The mask heads of a cascade ask for the same regions one after the other.
        layers = str(extractor.roi_layers)
        if self._pooled is None or self._pooled[0] is not rois or self._pooled[1] != layers:
            pooled = pool_regions(extractor, rois, coarse, self.num_fine, source, self.maps.shape)
            self._pooled = rois, layers, pooled
        return self._pooled[2]


def _check_parts(model: nn.Module, parts: dict[str, nn.Module | None]) -> None:
    """Refuse detectors that are not built of a neck and a dense head with priors."""
    missing = [name for name, part in parts.items() if part is None]
    head = list(parts.values())[-1]
    wanted = ('prior_generator', 'use_sigmoid_cls', '_predict_by_feat_single')
    missing += [name for name in wanted if not hasattr(head, name)] if head is not None else []
    if missing:
        raise CannotCutError(
            f'{type(model).__name__} cannot run in parts: that needs a neck and a dense head with '
            f'anchors or points, and it has no {", ".join(missing)}'
        )


def _region_parts(roi_head: nn.Module | None) -> tuple[list[nn.Module], list[nn.Module]]:
    """Extractors and mask heads of a head of regions; a cascade has one of each for a stage."""
    if roi_head is None:
        return [], []
    for name in ('with_semantic', 'with_glbctx', 'with_feat_relay'):
        if getattr(roi_head, name, False):
            raise CannotCutError(f'the model cannot run in parts: roi_head is {name}')
    found = [
        _as_list(getattr(roi_head, f'{kind}_roi_extractor', None)) for kind in ('bbox', 'mask')
    ]
    extractors = list(dict.fromkeys(found[0] + found[1]))
    for extractor in extractors:
        check_extractor(extractor)
    return extractors, _as_list(getattr(roi_head, 'mask_head', None))


def _as_list(part: nn.Module | None) -> list[nn.Module]:
    if part is None:
        return []
    return list(part) if isinstance(part, nn.ModuleList) else [part]
