"""Features of regions (RoIAlign) from a pyramid that exists one tile at a time.

Each bin of a region is an average over sample points, and each point is a weighted sum of four
cells. Points are looked up in the tile that they fall in, so a region may be larger than a tile.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .errors import CannotCutError
from .tiles import Tile

# The tiles of an image, each with its maps of the fine levels.
TileSource = Callable[[Callable[[Tile], bool]], Iterator[tuple[Tile, list[Tensor]]]]


@dataclass(frozen=True)
class Points:
    """Sample points of the regions of one level, those of a bin one after the other.

    Args:
        bins: Number of the bin, regions one after the other.
        y: Rows of the cells above and below, (2, points).
        x: Columns of the cells to the left and right, (2, points).
        weights: Weights of the four cells, (points, 4).
        stride: Stride of the level.
    """

    bins: Tensor
    y: Tensor
    x: Tensor
    weights: Tensor
    stride: int

    def __getitem__(self, chosen: Tensor) -> 'Points':
        y, x = self.y[:, chosen], self.x[:, chosen]
        return Points(self.bins[chosen], y, x, self.weights[chosen], self.stride)

    def inside(self, tile: Tile) -> Tensor:
        """Say for which points a tile is responsible: those whose first cell is a wanted one."""
        inside = torch.ones_like(self.bins, dtype=torch.bool)
        for cells, span in ((self.y[0], tile.rows), (self.x[0], tile.columns)):
            inside &= (cells >= span.start // self.stride) & (cells < span.stop // self.stride)
        return inside


def check_extractor(extractor: nn.Module) -> None:
    """Refuse region features that are not RoIAlign on one level for each region."""
    layers = getattr(extractor, 'roi_layers', [])
    wanted = ('output_size', 'spatial_scale', 'sampling_ratio', 'aligned')
    if not (
        hasattr(extractor, 'map_roi_levels')
        and all(hasattr(layer, name) for layer in layers for name in wanted)
        and all(getattr(layer, 'pool_mode', 'avg') == 'avg' for layer in layers)
    ):
        raise CannotCutError(
            'the model cannot run in parts: its regions have to be pooled by RoIAlign from one '
            f'level each, and {type(extractor).__name__} does something else'
        )


def pool_from_whole(
    extractor: nn.Module, rois: Tensor, coarse: list[Tensor], num_fine: int
) -> Tensor:
    """Pool the regions of the coarse levels as the extractor does; those of others are zero.

    Args:
        extractor: RoI extractor of mmdet.
        rois: Regions (N, 5): number of the image, left, top, right, bottom.
        coarse: Whole maps of the coarse levels.
        num_fine: Levels before these.
    """
    levels = extractor.map_roi_levels(rois, extractor.num_inputs)
    features = _no_features(extractor, rois)
    for level, layer in list(enumerate(extractor.roi_layers))[num_fine:]:
        chosen = (levels == level).nonzero().flatten()
        if len(chosen):
            features[chosen] = layer(coarse[level - num_fine], rois[chosen])
    return features


def pool_from_tiles(
    extractor: nn.Module,
    rois: Tensor,
    num_fine: int,
    tiles: TileSource,
    shape: tuple[int, int],
) -> Tensor:
    """Pool the regions of the fine levels as the extractor does; those of others are zero.

    Args:
        extractor: RoI extractor of mmdet.
        rois: Regions (N, 5).
        num_fine: Levels that come in tiles.
        tiles: Gives tiles for which a question is true, with their fine maps.
        shape: Height and width of the padded image.
    """
    levels = extractor.map_roi_levels(rois, extractor.num_inputs)
    points = {
        level: sample_points(layer, rois, (levels == level).nonzero().flatten(), shape)
        for level, layer in enumerate(extractor.roi_layers[:num_fine])
    }
    # Regions, rows and columns of bins, channels: the channels of a bin side by side.
    features = _no_features(extractor, rois).permute(0, 2, 3, 1).contiguous()
    bins_BC = features.flatten(0, 2)
    for tile, maps in tiles(lambda tile: any(each.inside(tile).any() for each in points.values())):
        for level, found in points.items():
            _add_points(bins_BC, found[found.inside(tile)], maps[level], tile)
    return features.permute(0, 3, 1, 2).contiguous()


def _no_features(extractor: nn.Module, rois: Tensor) -> Tensor:
    size = extractor.roi_layers[0].output_size
    return rois.new_zeros(len(rois), extractor.out_channels, *size)


def sample_points(layer: nn.Module, rois: Tensor, chosen: Tensor, shape: tuple[int, int]) -> Points:
    """Place the sample points of RoIAlign on a map.

    Args:
        layer: RoIAlign.
        rois: Regions (N, 5).
        chosen: Those of this level, ascending.
        shape: Height and width of the padded image.
    """
    corners = rois[chosen, 1:] * layer.spatial_scale - (0.5 if layer.aligned else 0)
    start_N2, end_N2 = corners[:, [1, 0]], corners[:, [3, 2]]
    length_N2 = end_N2 - start_N2
    if not layer.aligned:
        length_N2 = length_N2.clamp(min=1)
    bins = torch.tensor(layer.output_size, device=rois.device)
    bin_N2 = length_N2 / bins
    grid_N2 = bin_N2.ceil().long().clamp(min=0)
    if layer.sampling_ratio > 0:
        grid_N2 = torch.full_like(grid_N2, layer.sampling_ratio)
    lines_N2 = grid_N2 * bins
    counts_N = lines_N2.prod(dim=1)
    owner = torch.repeat_interleave(torch.arange(len(chosen), device=rois.device), counts_N)
    number = torch.arange(len(owner), device=rois.device)
    number = number - (counts_N.cumsum(0) - counts_N)[owner]
    line = torch.stack([number // lines_N2[owner, 1], number % lines_N2[owner, 1]], dim=1)
    grid = grid_N2[owner]
    in_bin = line // grid
    position = start_N2[owner] + in_bin * bin_N2[owner]
    position = position + (line - in_bin * grid + 0.5) * bin_N2[owner] / grid
    bin_number = (chosen[owner] * bins[0] + in_bin[:, 0]) * bins[1] + in_bin[:, 1]
    order = bin_number.argsort(stable=True)
    weight = 1 / grid.prod(dim=1).to(rois.dtype)
    stride = round(1 / layer.spatial_scale)
    return _corners(bin_number[order], position[order], weight[order], stride, shape)


def _corners(
    bins: Tensor, position: Tensor, weight: Tensor, stride: int, shape: tuple[int, int]
) -> Points:
    """Find the four cells around points, and their weights; points far outside have none."""
    sides = torch.tensor(shape, device=position.device) // stride
    outside = ((position < -1) | (position > sides)).any(dim=1)
    position = position.clamp(min=0)
    low = position.long()
    low = torch.minimum(low, sides - 1)
    high = torch.minimum(low + 1, sides - 1)
    part = torch.where(low == sides - 1, 0, position - low)
    (y, x), (not_y, not_x) = part.T, (1 - part).T
    weights = torch.stack([not_y * not_x, not_y * x, y * not_x, y * x], dim=1)
    weights = weights * weight[:, None] * ~outside[:, None]
    rows, columns = (torch.stack([low[:, axis], high[:, axis]]) for axis in (0, 1))
    return Points(bins, rows, columns, weights, stride)


def _add_points(bins_BC: Tensor, points: Points, map_1CHW: Tensor, tile: Tile) -> None:
    """Add the values of points in a tile to their bins."""
    if not len(points.bins):
        return
    width = map_1CHW.shape[3]
    y = points.y - tile.rows.first // points.stride
    x = points.x - tile.columns.first // points.stride
    cells = torch.stack([y[row] * width + x[column] for row in (0, 1) for column in (0, 1)], dim=1)
    bins, counts = points.bins.unique_consecutive(return_counts=True)
    sums_BC = F.embedding_bag(
        cells.flatten(),
        map_1CHW[0].permute(1, 2, 0).reshape(-1, map_1CHW.shape[1]),
        4 * (counts.cumsum(0) - counts),
        mode='sum',
        per_sample_weights=points.weights.flatten(),
    )
    bins_BC.index_add_(0, bins, sums_BC)
