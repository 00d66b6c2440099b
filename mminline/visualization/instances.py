"""Draw detected objects over an image."""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from .checks import check_image
from .colours import Colour, class_colours, ink_on
from .text import TextStyle


def draw_instances(
    image_HWC: np.ndarray,
    boxes: np.ndarray,
    labels: Sequence[int],
    scores: Sequence[float],
    masks: Sequence[np.ndarray] | None,
    classes: Sequence[str],
    palette: Sequence[Sequence[int]] | None = None,
    opacity: float = 0.5,
) -> np.ndarray:
    """Draw boxes with class and score, and masks as coloured areas with an outline.

    Large objects are drawn first, so that small ones are seen in front of them.

    Args:
        image_HWC: Image as OpenCV reads it, blue first.
        boxes: Left, top, right and bottom of each object. If all are equal, the box of the mask
            is drawn: some models find masks only.
        labels: Index of the class of each object.
        scores: Score of each object.
        masks: Mask of each object, of the size of the image: a boolean array, or anything that
            gives one for ``masks[index][rows, columns]``. Only the inside of the box is read,
            one object at a time.
        classes: Names of the classes.
        palette: Red, green and blue of each class; None for colours that differ in hue.
        opacity: Share of the colour of a mask.

    Returns:
        The picture, of the size of the image and blue first.
    """
    check_image(image_HWC)
    _check_objects(boxes, labels, scores, masks)
    style = TextStyle.for_picture(image_HWC)
    colours = class_colours(palette, len(classes))
    objects = []
    for index, (label, score) in enumerate(zip(labels, scores, strict=True)):
        mask_HW = None if masks is None else masks[index]
        box = _whole_pixels(boxes[index], mask_HW, image_HWC.shape)
        objects.append(_Object(box, mask_HW, colours[label], f'{classes[label]} {score:.2f}'))
    objects.sort(key=_Object.area, reverse=True)
    picture_HWC = (
        image_HWC.copy() if masks is None else _draw_masks(image_HWC, objects, opacity, style.line)
    )
    for box, _, colour, _ in objects:
        cv2.rectangle(picture_HWC, box[:2], box[2:], colour, style.line)
    for each in objects:
        _draw_label(picture_HWC, each, style)
    return picture_HWC


class _Object(NamedTuple):
    box: tuple[int, int, int, int]
    mask_HW: np.ndarray | None
    colour: Colour
    text: str

    def area(self) -> int:
        left, top, right, bottom = self.box
        return (right - left) * (bottom - top)


def _check_objects(
    boxes: np.ndarray,
    labels: Sequence[int],
    scores: Sequence[float],
    masks: Sequence[np.ndarray] | None,
) -> None:
    counts = dict(boxes=len(boxes), labels=len(labels), scores=len(scores))
    if masks is not None:
        counts['masks'] = len(masks)
    if len(set(counts.values())) > 1:
        raise ValueError(f'every object has to have a box, a label and so on, got {counts}')
    if any(len(box) != 4 for box in boxes):
        raise ValueError(f'a box has to be left, top, right, bottom, got {len(boxes[0])} numbers')


def _whole_pixels(
    box: Sequence[float], mask_HW: np.ndarray | None, shape: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """First and last column and row of an object inside an image."""
    left, top, right, bottom = map(float, box)
    if mask_HW is not None and left == top == right == bottom:
        left, top, width, height = cv2.boundingRect(np.asarray(mask_HW[:, :], np.uint8))
        right, bottom = left + width, top + height
    height, width = shape[:2]
    columns = np.clip([np.floor(left), np.ceil(right) - 1], 0, width - 1)
    rows = np.clip([np.floor(top), np.ceil(bottom) - 1], 0, height - 1)
    return int(columns[0]), int(rows[0]), int(columns[1]), int(rows[1])


def _draw_masks(
    image_HWC: np.ndarray, objects: list[_Object], opacity: float, line: int
) -> np.ndarray:
    """Colour masks, later ones in front, and draw their outlines."""
    painted_HWC, outlines = image_HWC.copy(), []
    for (left, top, right, bottom), mask_HW, colour, _ in objects:
        inside = np.ascontiguousarray(mask_HW[top : bottom + 1, left : right + 1], np.uint8)
        contours, hierarchy = cv2.findContours(
            inside, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE, offset=(left, top)
        )
        cv2.drawContours(painted_HWC, contours, -1, colour, cv2.FILLED, hierarchy=hierarchy)
        outlines.append(contours)
    picture_HWC = cv2.addWeighted(image_HWC, 1 - opacity, painted_HWC, opacity, 0)
    # Steps of a pixel are seen in thin lines only, and thick smooth ones take five times as long.
    kind = cv2.LINE_AA if line < 3 else cv2.LINE_8
    for contours, each in zip(outlines, objects, strict=True):
        cv2.drawContours(picture_HWC, contours, -1, each.colour, line, kind)
    return picture_HWC


def _draw_label(picture_HWC: np.ndarray, found: _Object, style: TextStyle) -> None:
    """Write class and score above the box, or inside it at the upper edge of the picture."""
    width, height = style.size(found.text)
    left, top = found.box[:2]
    left = max(min(left, picture_HWC.shape[1] - width), 0)
    top = top - height if top >= height else top
    corners = (left, top), (left + width - 1, top + height - 1)
    cv2.rectangle(picture_HWC, *corners, found.colour, cv2.FILLED)
    style.write(picture_HWC, found.text, (left, top), ink_on(found.colour))
