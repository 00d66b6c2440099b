"""Masks of detected objects that are wanted, and of no others."""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator

from torch import nn

from ..replaced import replaced

# Methods between the boxes of a two-stage detector and the masks of its objects. A head that has
# others may change scores after the boxes, or count on all of them.
METHODS = dict(
    predict=('BaseRoIHead.predict',),
    predict_bbox=('StandardRoIHead.predict_bbox', 'CascadeRoIHead.predict_bbox'),
    predict_mask=('StandardRoIHead.predict_mask', 'CascadeRoIHead.predict_mask'),
)
# Threads that replaced the method of one model in turns could leave the other's behind.
_turns: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def masks_from(model: nn.Module, score_thr: float) -> Iterator[None]:
    """Let a detector leave objects of a lower score out before it computes their masks.

    A detector of mmdet computes masks for all objects above the threshold of its config, 0.05 as
    a rule, up to 100 of them, and pastes each into a map of the size of the image. Boxes, labels,
    scores and, up to rounding, masks of the others stay the same: an object knows nothing of the
    others behind NMS. Models of another kind run as they are.
    """
    roi_head = getattr(model, 'roi_head', None)
    # Panoptic models, among others, go on with the objects.
    is_last = (
        getattr(getattr(model, 'predict', None), '__qualname__', None) == 'TwoStageDetector.predict'
    )
    if not (is_last and getattr(roi_head, 'with_mask', False) and _is_of_mmdet(roi_head)):
        yield
        return
    with _turns.setdefault(model, threading.RLock()):
        predict_bbox = functools.partial(
            _predict_bbox, roi_head.predict_bbox, score_thr, threading.get_ident()
        )
        with replaced(roi_head, 'predict_bbox', predict_bbox):
            yield


def _predict_bbox(predict_bbox: Callable, score_thr: float, thread: int, *args, **kwargs) -> list:
    found = predict_bbox(*args, **kwargs)
    if threading.get_ident() != thread:  # another one, which has called the model itself
        return found
    return [each[each.scores >= score_thr] for each in found]


def _is_of_mmdet(roi_head: nn.Module) -> bool:
    methods = {name: getattr(roi_head, name, None) for name in METHODS}
    return all(
        getattr(method, '__module__', '').startswith('mmdet.')
        and method.__qualname__ in METHODS[name]
        for name, method in methods.items()
    )
