"""Best candidates of a dense head, gathered over the tiles of each level."""

import torch
from mmengine.structures import InstanceData
from torch import Tensor, nn

from .tiles import Tile


class Candidates:
    """Boxes of one level that can be among its best.

    A head keeps the ``nms_pre`` best pairs of box and class of a level. They belong to at most
    as many boxes, which are among the best if boxes are ranked by their best class: so this is
    enough to keep, and the head chooses the pairs itself.

    Args:
        head: Dense head.
        level: Number of the level.
        size: Height and width of its map for the whole image.
    """

    def __init__(self, head: nn.Module, level: int, size: tuple[int, int]) -> None:
        self.head = head
        self.level = level
        self.size = size
        self.num_priors = head.prior_generator.num_base_priors[level]
        self.limit = head.test_cfg.get('nms_pre', -1)
        self._rank_N = self._index_N = None
        self._values = []

    def add(self, outputs: list[Tensor], tile: Tile, stride: int) -> None:
        """Add the outputs of the head for the wanted cells of a tile."""
        rows, columns = outputs[0].shape[2:]
        top, left = tile.rows.start // stride, tile.columns.start // stride
        self._add(outputs, self._indices(top, left, rows, columns, outputs[0].device))

    def add_whole(self, outputs: list[Tensor]) -> None:
        """Add the outputs of the head for the whole level."""
        self._add(outputs, self._indices(0, 0, *self.size, outputs[0].device))

    def _indices(
        self, top: int, left: int, rows: int, columns: int, device: torch.device
    ) -> Tensor:
        """Number the boxes of cells as the head numbers them in the whole level."""
        y = torch.arange(top, top + rows, device=device)[:, None, None]
        x = torch.arange(left, left + columns, device=device)[:, None]
        prior = torch.arange(self.num_priors, device=device)
        return ((y * self.size[1] + x) * self.num_priors + prior).flatten()

    def _add(self, outputs: list[Tensor], index_N: Tensor) -> None:
        values = [each[0].permute(1, 2, 0).reshape(len(index_N), -1) for each in outputs]
        self.merge(self._rank(values[0]), index_N, values)

    def merge(self, rank_N: Tensor, index_N: Tensor, values: list[Tensor]) -> None:
        """Keep the best of the boxes so far and of others.

        Args:
            rank_N: Score of the best class of each of the others.
            index_N: Its number in the whole level.
            values: Outputs of the head for it.
        """
        if self._rank_N is not None:
            device = self._rank_N.device
            rank_N = torch.cat([self._rank_N, rank_N.to(device)])
            index_N = torch.cat([self._index_N, index_N.to(device)])
            pairs = zip(self._values, values, strict=True)
            values = [torch.cat([own, other.to(device)]) for own, other in pairs]
        if 0 < self.limit < len(rank_N):
            # Sorted by position again: equal scores keep the order they have in the whole level.
            kept = rank_N.topk(self.limit).indices
            kept = kept[index_N[kept].argsort()]
            rank_N, index_N = rank_N[kept], index_N[kept]
            values = [each[kept] for each in values]
        self._rank_N, self._index_N, self._values = rank_N, index_N, values

    def _rank(self, scores_NK: Tensor) -> Tensor:
        if self.head.use_sigmoid_cls:
            return scores_NK.sigmoid().amax(dim=1)
        return scores_NK.softmax(dim=1)[:, :-1].amax(dim=1)

    def kept(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the arguments for ``merge`` of another process, on the CPU."""
        return self._rank_N.cpu(), self._index_N.cpu(), [each.cpu() for each in self._values]

    def as_maps(self) -> list[Tensor]:
        """Return the kept outputs as maps of one column, the form that the head takes."""
        return [each.T[:, :, None] for each in self._values]

    def priors(self) -> Tensor:
        """Return the anchors or points of the kept boxes."""
        return self.head.prior_generator.sparse_priors(
            self._index_N, self.size, self.level, self._values[0].dtype, self._values[0].device
        )


def choose_boxes(
    head: nn.Module, levels: list[Candidates], meta: dict, rescale: bool
) -> InstanceData:
    """Let the head choose among the candidates of all levels, by its own rules."""
    maps = [level.as_maps() for level in levels]
    scores, boxes, factors = (
        [each[kind] if kind < len(each) else None for each in maps] for kind in range(3)
    )
    return head._predict_by_feat_single(
        cls_score_list=scores,
        bbox_pred_list=boxes,
        score_factor_list=factors,
        mlvl_priors=[level.priors() for level in levels],
        img_meta=meta,
        cfg=None,
        rescale=rescale,
    )
