"""Masks of instances as run lengths, pasted piece by piece."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

PIECE_PIXELS = 1 << 22


def paste_as_runs(paste: Callable, mask_preds: Tensor, bboxes: Tensor, **options) -> list[dict]:
    """Paste masks into an image of which only the part around each box exists.

    Args:
        paste: Method of the mask head that pastes masks into images, (N, height, width).
        mask_preds: Masks of the head.
        bboxes: Box of each instance, in pixels of the image.
        options: Its other arguments: ``labels``, ``img_meta`` and more.

    Returns:
        Run lengths of each mask, as COCO writes them.
    """
    labels, meta = options.pop('labels'), options.pop('img_meta')
    shape = meta['ori_shape'][:2]
    masks = []
    for number, box in enumerate(bboxes):
        one = slice(number, number + 1)
        starts, ends = [], []
        for top, bottom, left, right in _pieces(box, shape):
            window = dict(meta, ori_shape=(bottom - top, right - left))
            moved = bboxes[one] - bboxes.new_tensor([left, top, left, top])
            (mask_HW,) = paste(
                mask_preds=mask_preds[one],
                bboxes=moved,
                labels=labels[one],
                img_meta=window,
                **options,
            )
            found = _runs(mask_HW.cpu().numpy(), top, left, shape[0])
            starts.append(found[0])
            ends.append(found[1])
        masks.append(_encode(np.concatenate(starts), np.concatenate(ends), shape))
    return masks


def _pieces(box: Tensor, shape: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Split the pixels around a box into pieces of whole columns: top, bottom, left, right."""
    left, top, right, bottom = box.tolist()
    top, left = (max(int(np.floor(edge)) - 1, 0) for edge in (top, left))
    bottom = min(int(np.ceil(bottom)) + 1, shape[0])
    right = min(int(np.ceil(right)) + 1, shape[1])
    step = max(PIECE_PIXELS // max(bottom - top, 1), 1)
    return [
        (top, bottom, start, min(start + step, right))
        for start in range(left, max(right, left + 1), step)
    ]


def _runs(mask_HW: np.ndarray, top: int, left: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """First pixel of each run of a mask, and the one behind its last, columns one by one."""
    padded = np.pad(mask_HW.T.astype(np.int8), ((0, 0), (1, 1)))
    steps = np.diff(padded, axis=1)
    edges = []
    for step in (1, -1):
        column, row = np.nonzero(steps == step)
        edges.append((column + left) * height + row + top)
    return edges[0], edges[1]


def _encode(starts: np.ndarray, ends: np.ndarray, shape: tuple[int, int]) -> dict:
    """Write runs as COCO does: lengths of background and mask in turn, packed as text."""
    from pycocotools import mask  # comes with mmdet

    # A run that ends at the bottom goes on at the top of the next column.
    joined = starts[1:] == ends[:-1]
    starts = starts[np.concatenate([[True], ~joined])] if len(starts) else starts
    ends = ends[np.concatenate([~joined, [True]])] if len(ends) else ends
    edges = np.stack([starts, ends], axis=1).ravel()
    lengths = np.diff(edges, prepend=0, append=shape[0] * shape[1])
    lengths = lengths if lengths[-1] else lengths[:-1]
    runs = mask.frPyObjects(dict(counts=lengths.tolist(), size=list(shape)), *shape)
    return dict(size=list(shape), counts=runs['counts'].decode())
