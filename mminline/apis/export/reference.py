"""What mmdet itself finds in an image, to compare exported detectors with."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .detector import last_head


class Detections(NamedTuple):
    """Boxes with scores (N, 5), labels (N,) and boolean masks (N, H, W) or None."""

    dets: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None


class DistinctSigmoid(TorchDispatchMode):
    """Compute sigmoids in float64, and let those of large values differ by a little more."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not torch.ops.aten.sigmoid.default:
            return func(*args, **(kwargs or {}))
        value = args[0].double()
        # Above 37 sigmoids are 1 in float64 too.
        return value.sigmoid() + 1e-9 * value.clamp(min=0)


class DetectorReference:
    """A detector of mmdet on single images, by its own preprocessing and prediction.

    Args:
        model: The detector.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @torch.no_grad()
    def __call__(self, image: Tensor) -> Detections:
        """Detect objects in an image of RGB values, (1, 3, H, W)."""
        preprocessor = self.model.data_preprocessor
        # Pipelines hand images over blue first.
        blue_first = image[0].flip(0)
        size = tuple(image.shape[-2:])
        sample = BaseDataElement(
            metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0))
        )
        batch = preprocessor(dict(inputs=[blue_first], data_samples=[sample]), False)
        (sample,) = self.model.predict(batch['inputs'], batch['data_samples'])
        found = sample.pred_instances
        dets = torch.cat([found.bboxes, found.scores[:, None].float()], dim=1).numpy()
        masks = found.masks.numpy() if 'masks' in found else None
        return Detections(dets, found.labels.numpy(), masks)

    @contextlib.contextmanager
    def at_threshold(self, score: float) -> Iterator[None]:
        """Detect with another score threshold for a while."""
        cfg = last_head(self.model).test_cfg
        before = cfg.get('score_thr', 0)
        cfg.score_thr = score
        try:
            yield
        finally:
            cfg.score_thr = before

    @contextlib.contextmanager
    def exact_ranks(self) -> Iterator[None]:
        """Rank the boxes of anchors by scores that are never equal for a while.

        In float32 the sigmoids of all values above 17 are 1, and which of such boxes mmdet keeps is
        chance.
        """
        model = self.model
        head = model.rpn_head if hasattr(model, 'roi_head') else model.bbox_head
        choose = head.predict_by_feat

        def choose_exactly(*args, **options):
            with DistinctSigmoid():
                return choose(*args, **options)

        head.predict_by_feat = choose_exactly
        try:
            yield
        finally:
            del head.predict_by_feat
