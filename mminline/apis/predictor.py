"""Predict for single images: as data, as a picture, as files."""

from pathlib import Path

import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.structures import BaseDataElement
from torch import nn

from ..predictions import save_classes, save_instances
from ..visualization import draw_classes, draw_instances
from .detection import masks_from
from .pipeline import build_test_pipeline
from .segmentation import predict_class_map


class Predictor:
    """Predictions of a detector or segmentor, by the steps that its test data goes through.

    Both libraries have functions for this; mmseg's leaves the test data aside, and reads a
    pipeline that need not be the one a model is tested with.

    Args:
        model: From ``init_model``, or any other with its config as ``cfg`` and its classes in
            ``dataset_meta``.
        score_thr: Detected objects with a lower score are left out.
    """

    def __init__(self, model: nn.Module, score_thr: float = 0.3) -> None:
        self.model = model
        self.score_thr = score_thr
        self.classes = model.dataset_meta['classes']
        self.pipeline = build_test_pipeline(model.cfg)

    @torch.inference_mode()
    def predict(self, image_HWC: np.ndarray) -> BaseDataElement:
        """Predict for an image as OpenCV reads it, blue first.

        Returns:
            What ``test_step`` gives: ``pred_instances``, or ``pred_sem_seg``. Scores of classes,
            ``seg_logits``, are left out where the class map does not need them in full size.
        """
        batch = pseudo_collate([self.pipeline(image_HWC)])
        sample = predict_class_map(self.model, batch)
        if sample is None:
            with masks_from(self.model, self.score_thr):
                (sample,) = self.model.test_step(batch)
        if 'pred_instances' in sample:
            found = sample.pred_instances
            sample.pred_instances = found[found.scores >= self.score_thr]
        return sample.cpu()

    def draw(self, image_HWC: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """Draw a prediction over its image, blue first again."""
        palette = self.model.dataset_meta.get('palette')
        if 'pred_instances' in sample:
            return draw_instances(image_HWC, *_as_arrays(sample), self.classes, palette)
        return draw_classes(image_HWC, _as_class_map(sample), self.classes, palette)

    def save(self, sample: BaseDataElement, path: str | Path) -> None:
        """Write objects as ``path.json``, or the class of each pixel as ``path.png``."""
        if 'pred_instances' in sample:
            objects = _as_arrays(sample)
            save_instances(f'{path}.json', sample.ori_shape, *objects, self.classes)
        else:
            save_classes(f'{path}.png', _as_class_map(sample), len(self.classes))


def _as_arrays(sample: BaseDataElement) -> tuple[np.ndarray | None, ...]:
    """Boxes, labels, scores and masks of the objects of a sample."""
    found = sample.pred_instances.numpy()
    return found.bboxes, found.labels, found.scores, found.get('masks')


def _as_class_map(sample: BaseDataElement) -> np.ndarray:
    return sample.pred_sem_seg.data[0].numpy()
