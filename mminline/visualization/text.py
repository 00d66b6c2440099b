"""Text of a size that suits the picture."""

from dataclasses import dataclass

import cv2
import numpy as np

from .colours import Colour

FONT = cv2.FONT_HERSHEY_SIMPLEX
SMALLEST = 8  # pixels; smaller letters cannot be read
LINES_PER_SIDE = 45


@dataclass(frozen=True)
class TextStyle:
    """Font size and line width for a picture.

    Args:
        scale: Font scale of OpenCV.
        stroke: Thickness of letters in pixels.
        line: Thickness of boxes and outlines in pixels.
        padding: Space around text in pixels.
    """

    scale: float
    stroke: int
    line: int
    padding: int

    @classmethod
    def for_picture(cls, picture_HWC: np.ndarray) -> 'TextStyle':
        """Choose sizes by the shorter side of a picture."""
        height = max(SMALLEST, min(picture_HWC.shape[:2]) / LINES_PER_SIDE)
        (_, full), _ = cv2.getTextSize('X', FONT, 1.0, 1)
        return cls(
            scale=height / full,
            stroke=max(1, round(height / 14)),
            line=max(1, round(height / 9)),
            padding=max(1, round(height / 5)),
        )

    def size(self, text: str) -> tuple[int, int]:
        """Return width and height of a text with the space around it."""
        (width, height), below = cv2.getTextSize(text, FONT, self.scale, self.stroke)
        return width + 2 * self.padding, height + below + 2 * self.padding

    def write(
        self, picture_HWC: np.ndarray, text: str, corner: tuple[int, int], ink: Colour
    ) -> None:
        """Write a text whose space has its top left corner, (x, y), here."""
        (_, height), _ = cv2.getTextSize(text, FONT, self.scale, self.stroke)
        origin = (corner[0] + self.padding, corner[1] + self.padding + height)
        cv2.putText(picture_HWC, text, origin, FONT, self.scale, ink, self.stroke, cv2.LINE_AA)
