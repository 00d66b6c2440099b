"""Features of regions for the heads of a detector, pooled where the rows of the regions are.

Heads run in the first process of an image. Each time they ask for regions, all processes look up
the points that fall in their tiles, and the sums are added up.
"""

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn

from ..replaced import replaced
from .errors import CannotCutError
from .regions import TileSource, pool_from_tiles, pool_from_whole
from .tiles import Maps


class RegionPool:
    """Stand-in for the RoI extractors of a detector.

    Args:
        extractors: The extractors.
        maps: Maps of the backbone, and the processes that share them.
        num_fine: Levels that come in tiles; the others are whole.
        tiles: Gives own tiles for which a question is true, with their fine levels.
    """

    def __init__(
        self, extractors: list[nn.Module], maps: Maps, num_fine: int, tiles: TileSource
    ) -> None:
        self.extractors = extractors
        self.maps = maps
        self.num_fine = num_fine
        self.tiles = tiles
        self._latest = None
        self._is_pooling = False

    @contextlib.contextmanager
    def replace_extractors(self, coarse: list[Tensor]) -> Iterator[None]:
        """Let heads of the first process get their regions from here.

        Args:
            coarse: Whole maps of the coarse levels.
        """
        try:
            with contextlib.ExitStack() as stack:
                for number, extractor in enumerate(self.extractors):

                    def forward(
                        feats: tuple,
                        rois: Tensor,
                        roi_scale_factor: float | None = None,
                        number: int = number,
                    ) -> Tensor:
                        if roi_scale_factor is not None:
                            raise CannotCutError(
                                'the model cannot run in parts: it rescales its regions'
                            )
                        return self._pool(number, rois, coarse)

                    stack.enter_context(replaced(extractor, 'forward', forward))
                yield
        finally:
            # In the middle of a request the others wait for a sum, not for another request: an
            # error has to end this process, and theirs with it.
            if not self._is_pooling:
                self.maps.team.ask(None)

    def assist(self) -> None:
        """Pool own points for the first process, as often as it asks."""
        while (request := self.maps.team.ask()) is not None:
            self._pool_fine(*request)

    def _pool(self, number: int, rois: Tensor, coarse: list[Tensor]) -> Tensor:
        # The mask heads of a cascade ask for the same regions one after the other.
        layers = str(self.extractors[number].roi_layers)
        if self._latest is None or self._latest[0] is not rois or self._latest[1] != layers:
            self._is_pooling = True
            self.maps.team.ask((number, rois.cpu()))
            features = self._pool_fine(number, rois)
            self._is_pooling = False
            features += pool_from_whole(self.extractors[number], rois, coarse, self.num_fine)
            self._latest = rois, layers, features
        return self._latest[2]

    def _pool_fine(self, number: int, rois: Tensor) -> Tensor:
        features = pool_from_tiles(
            self.extractors[number],
            rois.to(self.maps.maps[0].device),
            self.num_fine,
            self.tiles,
            self.maps.shape,
        )
        return self.maps.team.add_up(features)
