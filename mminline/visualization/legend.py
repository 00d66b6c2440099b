"""A list of names with their colours in the corner of a picture."""

import cv2
import numpy as np

from .colours import WHITE, Colour
from .text import TextStyle

LARGEST_HEIGHT, LARGEST_WIDTH = 0.75, 0.5  # shares of the picture
SHADE = 0.4  # what is left of the picture's brightness behind the legend


def draw_legend(picture_HWC: np.ndarray, entries: list[tuple[str, Colour]]) -> None:
    """Draw names and colours into the top left corner, as many as there is room for.

    Args:
        picture_HWC: Picture to draw on.
        entries: Name and colour of each row, the most important first.
    """
    style = TextStyle.for_picture(picture_HWC)
    height, width = picture_HWC.shape[:2]
    row = style.size('Xg')[1]
    room = int(LARGEST_HEIGHT * height) // row
    if len(entries) > room:
        entries = entries[: max(room - 1, 0)] + [(f'{len(entries) - room + 1} more', None)]
    names = [name for name, _ in entries]
    wide = row + max((style.size(name)[0] for name in names), default=0)
    if not entries or not room or wide > LARGEST_WIDTH * width:
        return
    panel = picture_HWC[: row * len(entries) + style.padding, :wide]
    cv2.convertScaleAbs(panel, panel, alpha=SHADE)
    for index, (name, colour) in enumerate(entries):
        top = index * row + style.padding
        if colour:
            low, high = 2 * style.padding, row - style.padding
            corners = (low, top + style.padding), (high, top + high - style.padding)
            cv2.rectangle(picture_HWC, *corners, colour, cv2.FILLED)
        style.write(picture_HWC, name, (row, top), WHITE)
