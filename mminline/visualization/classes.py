"""Draw the class of each pixel over an image."""

from collections.abc import Sequence

import cv2
import numpy as np

from .checks import check_image
from .colours import Colour, class_colours
from .legend import draw_legend
from .text import TextStyle


def draw_classes(
    image_HWC: np.ndarray,
    class_map_HW: np.ndarray,
    classes: Sequence[str],
    palette: Sequence[Sequence[int]] | None = None,
    opacity: float = 0.5,
) -> np.ndarray:
    """Colour the pixels of an image by their class, with a legend of the classes that appear.

    Args:
        image_HWC: Image as OpenCV reads it, blue first.
        class_map_HW: Index of the class of each pixel. Pixels of an index beyond the classes,
            such as 255 for pixels that do not count, stay as they are.
        classes: Names of the classes; a class without a name is not in the legend.
        palette: Red, green and blue of each class; None for colours that differ in hue.
        opacity: Share of the colour: 0 shows the image alone, 1 the colours alone.

    Returns:
        The picture, of the size of the image and blue first.
    """
    check_image(image_HWC)
    if class_map_HW.shape != image_HWC.shape[:2]:
        raise ValueError(
            f'class_map_HW has to have the size of the image, {image_HWC.shape[:2]}, '
            f'got {class_map_HW.shape}'
        )
    colours = class_colours(palette, len(classes))
    class_map_HW = _as_small_indices(class_map_HW, len(classes))
    bins = len(classes) + 1
    counts = cv2.calcHist([class_map_HW], [0], None, [bins], [0, bins]).ravel()
    painted_HWC = _look_up(class_map_HW, [*colours, (0, 0, 0)])
    picture_HWC = cv2.addWeighted(image_HWC, 1 - opacity, painted_HWC, opacity, 0)
    cv2.copyTo(painted_HWC, _borders(class_map_HW), picture_HWC)
    if counts[-1]:
        cv2.copyTo(image_HWC, (class_map_HW == len(classes)).view(np.uint8), picture_HWC)
    largest_first = np.argsort(-counts[:-1], kind='stable')
    shown = [index for index in largest_first if counts[index] and classes[index]]
    draw_legend(picture_HWC, [(classes[index], colours[index]) for index in shown])
    return picture_HWC


def _as_small_indices(class_map_HW: np.ndarray, num_classes: int) -> np.ndarray:
    """Give whatever is no class the index after the last one, and use few bytes for each."""
    if class_map_HW.dtype.kind == 'f':  # mmseg's, if there is a single class with a threshold
        class_map_HW = class_map_HW.astype(np.int64)
    unsigned_HW = class_map_HW.view(f'u{class_map_HW.dtype.itemsize}')  # -1 becomes a large one
    small = np.uint8 if num_classes < 256 else np.uint16
    last = min(num_classes, np.iinfo(unsigned_HW.dtype).max)
    return np.minimum(unsigned_HW, unsigned_HW.dtype.type(last)).astype(small, copy=False)


def _look_up(class_map_HW: np.ndarray, colours: Sequence[Colour]) -> np.ndarray:
    if class_map_HW.dtype != np.uint8:
        return np.take(np.array(colours, np.uint8), class_map_HW, axis=0)
    table = np.zeros((256, 1, 3), np.uint8)
    table[: len(colours), 0] = colours
    return cv2.applyColorMap(class_map_HW, table)  # several times as fast


def _borders(class_map_HW: np.ndarray) -> np.ndarray:
    """Mark the pixels at which another class begins, in lines that suit the picture."""
    side = 1 + TextStyle.for_picture(class_map_HW).line
    window = np.ones((side, side), np.uint8)
    differs_HW = cv2.morphologyEx(class_map_HW, cv2.MORPH_GRADIENT, window)
    return differs_HW if differs_HW.dtype == np.uint8 else (differs_HW > 0).view(np.uint8)
