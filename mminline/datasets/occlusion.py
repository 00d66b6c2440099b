"""Who hides whom: which figure is seen in each pixel."""

import numpy as np

from .figures import FULL, Stamp


class Occlusion:
    """Figures laid over each other.

    Attributes:
        instances_HW: The figure seen in each pixel, counted from 1 in the order laid down;
            0 is background.
        areas: Pixels of each figure when it was laid down.
        visible: How many of these are still in sight.
    """

    def __init__(self, size: int):
        self.instances_HW = np.zeros((size, size), np.uint8)
        self.areas = np.zeros(0, np.int64)
        self.visible = np.zeros(0, np.int64)

    def leaves_enough(self, stamp: Stamp) -> bool:
        """Whether at least three quarters of each figure would stay in sight under a stamp."""
        return bool(np.all(4 * (self.visible - self._hidden(stamp)) >= 3 * self.areas))

    def add_figure(self, stamp: Stamp) -> None:
        """Lay a figure over what is there."""
        self._cover(stamp, len(self.areas) + 1)
        area = np.count_nonzero(self.instances_HW == len(self.areas) + 1)
        self.areas, self.visible = (
            np.append(pixels, area) for pixels in (self.areas, self.visible)
        )

    def add_background(self, stamp: Stamp) -> None:
        """Lay something over the figures that is none itself."""
        self._cover(stamp, 0)

    def _hidden(self, stamp: Stamp) -> np.ndarray:
        canvas, solid = self._meet(stamp)
        return np.bincount(canvas[solid], minlength=len(self.areas) + 1)[1:]

    def _cover(self, stamp: Stamp, instance: int) -> None:
        self.visible = self.visible - self._hidden(stamp)
        canvas, solid = self._meet(stamp)
        canvas[solid] = instance

    def _meet(self, stamp: Stamp) -> tuple[np.ndarray, np.ndarray]:
        """The part of the canvas that a stamp meets, and which of its pixels the stamp takes."""
        on_canvas, in_stamp = stamp.windows(len(self.instances_HW))
        return self.instances_HW[on_canvas], 2 * stamp.coverage_HW[in_stamp] >= FULL
