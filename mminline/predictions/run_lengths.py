"""Masks as run lengths, in the compressed form of COCO."""

import cv2
import numpy as np

BITS = 5  # of a number in one character
MORE = 1 << BITS  # set in each character but the last of a number
FIRST_CHARACTER = 48


def encode_mask(mask_HW: np.ndarray) -> dict:
    """Encode a mask as ``pycocotools.mask.encode`` does, with ``counts`` as text.

    Args:
        mask_HW: Boolean mask.

    Returns:
        ``size``, height and width, and ``counts``, the lengths of runs of equal pixels down the
        columns, beginning with pixels outside the mask.
    """
    mask_HW = np.ascontiguousarray(mask_HW, np.uint8)
    edges = [0, *_find_edges(mask_HW).tolist()]
    if edges[-1] != mask_HW.size:
        edges.append(mask_HW.size)
    return dict(size=list(mask_HW.shape), counts=_compress(np.diff(edges).tolist()))


def _find_edges(mask_HW: np.ndarray) -> np.ndarray:
    """Find where runs inside and outside a mask begin, counted down the columns.

    Only the rectangle around the mask is searched: most objects are much smaller than the image.
    """
    left, top, width, height = cv2.boundingRect(mask_HW)
    inside_WH = cv2.transpose(mask_HW[top : top + height, left : left + width])
    columns_WH = np.zeros((width, height + 2), bool)
    columns_WH[:, 1:-1] = inside_WH
    columns, rows = np.nonzero(columns_WH[:, 1:] != columns_WH[:, :-1])
    edges, times = np.unique((left + columns) * len(mask_HW) + top + rows, return_counts=True)
    return edges[times == 1]  # a run that ends where the next column's begins goes on


def _compress(counts: list[int]) -> str:
    """Write numbers, from the fourth on as the difference from the one two before, as text."""
    numbers = counts[:3] + [new - old for old, new in zip(counts[1:], counts[3:], strict=False)]
    return ''.join(map(_as_characters, numbers))


def _as_characters(number: int) -> str:
    """Write a number in groups of five bits, the lowest first, the sign in the last one."""
    characters = []
    while True:
        group, number = number & (MORE - 1), number >> BITS
        sign = group >> (BITS - 1)
        last = number == -sign
        characters.append(chr(FIRST_CHARACTER + (group if last else group | MORE)))
        if last:
            return ''.join(characters)
