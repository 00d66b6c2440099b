"""Occlusion: which figure is seen in each pixel."""

import numpy as np

from .figures import FULL, CoverageMask


class Occlusion:
    """Figures laid over each other.

    Attributes:
        instances_HW: The figure seen in each pixel, counted from 1 in the order laid down;
            0 is background.
        areas: Pixels of each figure when it was laid down.
        visible: How many of these are still in sight.
    """

    def __init__(self, shape: tuple[int, int]):
        self.instances_HW = np.zeros(shape, np.uint8)
        self.areas = np.zeros(0, np.int64)
        self.visible = np.zeros(0, np.int64)

    def leaves_enough(self, mask: CoverageMask) -> bool:
        """Whether at least three quarters of each figure would stay in sight under a mask."""
        return bool(np.all(4 * (self.visible - self._hidden(mask)) >= 3 * self.areas))

    def add_figure(self, mask: CoverageMask) -> None:
        """Lay a figure over what is there."""
        self._cover(mask, len(self.areas) + 1)
        area = np.count_nonzero(self.instances_HW == len(self.areas) + 1)
        self.areas, self.visible = (
            np.append(pixels, area) for pixels in (self.areas, self.visible)
        )

    def add_background(self, mask: CoverageMask) -> None:
        """Lay something over the figures that is none itself."""
        self._cover(mask, 0)

    def _hidden(self, mask: CoverageMask) -> np.ndarray:
        canvas, solid = self._overlap(mask)
        return np.bincount(canvas[solid], minlength=len(self.areas) + 1)[1:]

    def _cover(self, mask: CoverageMask, instance: int) -> None:
        self.visible = self.visible - self._hidden(mask)
        canvas, solid = self._overlap(mask)
        canvas[solid] = instance

    def _overlap(self, mask: CoverageMask) -> tuple[np.ndarray, np.ndarray]:
        """Part of the canvas that a mask meets, and which of its pixels the mask takes."""
        of_canvas, of_mask = mask.overlap(self.instances_HW.shape)
        return self.instances_HW[of_canvas], 2 * mask.coverage_HW[of_mask] >= FULL
