"""Class scores row by row: resized and compared while a row is in the cache.

The scores of all classes at the size of an image take gigabytes (150 classes at 1024 x 2048:
1.3 GB), and resizing and comparing them takes long. If only the class of each pixel is wanted, no
more than two rows of scores are needed at a time. The scores are those of ``F.interpolate`` on a
CPU, bit by bit.
"""

import functools
import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .threads import count_band_threads, cut_evenly, map_bands

# Height plus width up to which F.interpolate takes another kernel, which rounds differently.
OTHER_KERNEL = 128


class ScoreRows(NamedTuple):
    """Scores of classes at each pixel, computed one row at a time from top to bottom.

    Args:
        shape: Height and width.
        dtype: Type of the scores.
        read: Gives the scores of a row, (C, W), which must not be changed.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    read: Callable[[int], Tensor]

    def crop(self, rows: slice, columns: slice) -> 'ScoreRows':
        """Keep some rows and columns."""
        first, last, _ = rows.indices(self.shape[0])
        left, right, _ = columns.indices(self.shape[1])
        return ScoreRows(
            (last - first, right - left),
            self.dtype,
            lambda row: self.read(first + row)[:, left:right],
        )

    def stack(self) -> Tensor:
        """Put all rows together, (C, H, W)."""
        return torch.stack([self.read(row) for row in range(self.shape[0])], dim=1)

    def resize(
        self,
        size: tuple[int, int],
        align_corners: bool,
        whole_size: tuple[int, int] | None = None,
    ) -> 'ScoreRows':
        """Resize as ``F.interpolate(..., mode='bilinear')`` does.

        Args:
            size: Height and width afterwards.
            align_corners: As for ``F.interpolate``.
            whole_size: If these are rows of a part of an image, the size of the whole afterwards,
                by which ``F.interpolate`` chooses its kernel. The ratio has to be a power of two:
                then a part has the weights of the whole.
        """
        size = tuple(size)
        if size == self.shape:
            return self
        interpolate = functools.partial(F.interpolate, align_corners=align_corners)
        # A single cell has any layout, and the other kernel is also that of channels-last maps.
        is_single = whole_size is None and self.shape == (1, 1)
        if is_single or sum(whole_size or size) <= OTHER_KERNEL:
            return from_scores(interpolate(self.stack()[None], size, mode='bilinear')[0])

        @_remember_two
        def read_wide(row: int) -> Tensor:
            return interpolate(self.read(row)[None], size[1], mode='linear')[0]

        weighed = _weigh_rows(self.shape[0], size[0], align_corners, self.dtype)

        def read(row: int) -> Tensor:
            upper, upper_weight, lower, lower_weight = weighed[row]
            above_CW, below_CW = read_wide(upper), read_wide(lower)
            # In this order, with one rounding less if the processor can, as the kernel does it.
            return (below_CW * lower_weight).addcmul_(above_CW, upper_weight)

        return ScoreRows(size, self.dtype, read)

    def argmax(self) -> Tensor:
        """Index of the highest score of each pixel, (H, W); of equal ones the first."""

        def find_best(rows: range) -> Tensor:
            return torch.stack([_first_best(self.read(row)) for row in rows])

        num_threads = count_band_threads(torch.device('cpu'))
        # Few runs: each widens its first rows again.
        runs = cut_evenly(self.shape[0], num_threads, runs_per_thread=4)
        return torch.cat(map_bands(find_best, runs, num_threads))


def from_scores(scores_CHW: Tensor) -> ScoreRows:
    """Read the rows of scores that are there."""
    return ScoreRows(tuple(scores_CHW.shape[1:]), scores_CHW.dtype, lambda row: scores_CHW[:, row])


def _remember_two(function: Callable[[int], Tensor]) -> Callable[[int], Tensor]:
    """Keep the last two results of a function, for each thread its own."""
    local = threading.local()

    def remembered(row: int) -> Tensor:
        if not hasattr(local, 'function'):
            local.function = functools.lru_cache(maxsize=2)(function)
        return local.function(row)

    return remembered


def _first_best(scores_CW: Tensor) -> Tensor:
    """Find the first of the highest scores of each column.

    Several times as fast as ``argmax``, which compares one number at a time.
    """
    num_classes = len(scores_CW)
    is_best_CW = torch.eq(scores_CW, scores_CW.amax(dim=0), out=torch.empty_like(scores_CW))
    descending_C1 = torch.arange(num_classes, 0, -1, dtype=scores_CW.dtype)[:, None]
    first_W = num_classes - is_best_CW.mul_(descending_C1).amax(dim=0)
    return first_W.clamp_(max=num_classes - 1).long()  # NaN is equal to nothing


def _weigh_rows(
    rows_in: int, rows_out: int, align_corners: bool, dtype: torch.dtype
) -> list[tuple[int, Tensor, int, Tensor]]:
    """Find the row above each resized row, its weight, the row below and its weight.

    In the type of the scores and rounded as the kernel does it.
    """
    index = torch.arange(rows_out, dtype=dtype)
    number = functools.partial(torch.tensor, dtype=dtype)
    if align_corners:
        position = number((rows_in - 1.0) / max(rows_out - 1.0, 1.0)) * index
    else:
        scale = number(float(rows_in)) / rows_out
        position = torch.addcmul(number(-0.5), scale, index + 0.5).clamp(min=0)
    upper = position.floor().clamp(max=rows_in - 1)
    lower_weight = (position - upper).clamp(max=1)
    lower = (upper + 1).clamp(max=rows_in - 1)
    return list(
        zip(
            upper.int().tolist(),
            (1 - lower_weight).unbind(),
            lower.int().tolist(),
            lower_weight.unbind(),
            strict=True,
        )
    )
