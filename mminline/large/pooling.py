"""Pyramid pooling, which looks at the whole map, beside a head that runs in tiles."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..execution import as_part_of
from ..replaced import replaced
from .errors import CannotCutError
from .tiles import Maps, Tile


class WholePooling:
    """Pooled branches of a head, computed once from the whole map and cut for each tile.

    PSPNet and UperNet keep them as ``psp_modules``: branches that pool a map to a few cells and
    convolve these, resized to the size of the map. The map is joined with them, and the
    ``bottleneck`` behind is computed once for the whole map too: how oneDNN rounds a convolution
    of many channels depends on the width of the map.

    Args:
        head: Decode head.
        maps: Maps of the whole image.
    """

    def __init__(self, head: nn.Module, maps: Maps) -> None:
        self.module = getattr(head, 'psp_modules', None)
        self.maps = maps
        self.bottleneck = getattr(head, 'bottleneck', None)
        self._run_whole = getattr(self.module, 'forward', None)  # before they are replaced
        self._run_bottleneck = getattr(self.bottleneck, 'forward', None)
        self._pooled, self._behind = {}, {}

    @contextlib.contextmanager
    def on_tile(self, tile: Tile, slices: Sequence[Tensor]) -> Iterator[None]:
        """Let the head see the branches of the whole map, cut like the slices it is called with."""
        if self.module is None:
            yield
            return

        joined = None

        def pool(x: Tensor) -> list[Tensor]:
            nonlocal joined
            index = next((i for i, each in enumerate(slices) if each is x), None)
            if index is None:
                raise CannotCutError(
                    'pyramid pooling has to look at a map of the backbone, and looks at what '
                    'other layers make of one'
                )
            if index not in self._pooled:
                self._pooled[index] = self._pool(index)
            branches = [self._cut(each, index, tile) for each in self._pooled[index]]
            joined = index, [x, *branches]
            return branches

        def run_bottleneck(x: Tensor) -> Tensor:
            # A head may join something else, and a slice may be that of a test.
            if joined is None or joined[0] not in self._behind or not _consists_of(x, joined[1]):
                return self._run_bottleneck(x)
            return self._cut(self._behind[joined[0]], joined[0], tile)

        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(self.module, 'forward', pool))
            if self.bottleneck is not None:
                stack.enter_context(replaced(self.bottleneck, 'forward', run_bottleneck))
            yield

    def _pool(self, index: int) -> list[Tensor]:
        """Compute the branches of the whole map, and what the bottleneck makes of all."""
        whole = self.maps.whole(index)
        branches = self._run_whole(whole)
        channels = sum(each.shape[1] for each in (whole, *branches))
        if getattr(self.bottleneck, 'in_channels', None) == channels:
            with as_part_of(self.maps.image_shape, self.maps.shape):
                self._behind[index] = self._run_bottleneck(torch.cat([whole, *branches], dim=1))
        return branches

    def _cut(self, map_1CHW: Tensor, index: int, tile: Tile) -> Tensor:
        stride = self.maps.strides[index]
        part_1CHW = map_1CHW[:, :, tile.rows.computed(stride), tile.columns.computed(stride)]
        # The order in memory decides which kernel resizes it.
        is_channels_last = map_1CHW.is_contiguous(memory_format=torch.channels_last)
        order = torch.channels_last if is_channels_last else torch.contiguous_format
        return part_1CHW.contiguous(memory_format=order)


def _consists_of(x: Tensor, parts: Sequence[Tensor]) -> bool:
    """Whether a map is made of these maps, channel by channel."""
    channels = [part.shape[1] for part in parts]
    if x.shape[1] != sum(channels) or x.shape[2:] != parts[0].shape[2:]:
        return False
    return all(map(torch.equal, x.split(channels, dim=1), parts))
