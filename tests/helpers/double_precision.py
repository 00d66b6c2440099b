"""Detectors in float64, in which rounding cannot hide a difference."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest.mock import patch

from mmdet.models.roi_heads.mask_heads import fcn_mask_head
from torch import Tensor


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Let detectors run in float64: two steps, the last of boxes and of masks, want float32."""
    boxes = importlib.import_module('mmcv.ops.nms')  # the name in mmcv.ops is a function
    nms = SimpleNamespace(nms=_in_float32(boxes.ext_module.nms))
    paste = _in_float32(fcn_mask_head._do_paste_mask)
    with (
        patch.object(boxes, 'ext_module', nms),
        patch.object(fcn_mask_head, '_do_paste_mask', paste),
    ):
        yield


def _in_float32(function: Callable) -> Callable:
    def call(first: Tensor, second: Tensor, *args, **kwargs) -> object:
        return function(first.float(), second.float(), *args, **kwargs)

    return call
