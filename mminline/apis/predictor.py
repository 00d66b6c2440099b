"""Predict for single images: as data, as a picture, as files."""

import functools
import json
import uuid
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.registry import VISUALIZERS, init_default_scope
from mmengine.structures import BaseDataElement, InstanceData
from mmengine.visualization import Visualizer
from torch import nn

from .pipeline import build_test_pipeline


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
        """Predict for an image as OpenCV reads it, blue first."""
        (sample,) = self.model.test_step(pseudo_collate([self.pipeline(image_HWC)]))
        if 'pred_instances' in sample:
            found = sample.pred_instances
            sample.pred_instances = found[found.scores >= self.score_thr]
        return sample.cpu()

    def draw(self, image_HWC: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """Draw a prediction over its image, blue first again."""
        options = dict(pred_score_thr=0) if 'pred_instances' in sample else {}
        image = mmcv.bgr2rgb(image_HWC)
        self._visualizer.add_datasample('prediction', image, sample, draw_gt=False, **options)
        return mmcv.rgb2bgr(self._visualizer.get_image())

    def save(self, sample: BaseDataElement, path: str | Path) -> None:
        """Write objects as ``path.json``, or the class of each pixel as ``path.png``."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if 'pred_instances' in sample:
            height, width = sample.ori_shape
            found = self._as_coco(sample.pred_instances.numpy())
            text = json.dumps(dict(height=height, width=width, instances=found))
            Path(f'{path}.json').write_text(text + '\n')
        else:
            indices_HW = sample.pred_sem_seg.data[0].numpy()
            indices_HW = indices_HW.astype(np.uint8 if len(self.classes) <= 256 else np.uint16)
            mmcv.imwrite(indices_HW, f'{path}.png')

    @functools.cached_property
    def _visualizer(self) -> Visualizer:
        config = self.model.cfg
        if not config.get('visualizer'):
            raise ValueError('drawing needs a visualizer, and the config of the model has none')
        init_default_scope(config.get('default_scope', 'mmengine'))
        # A name of its own: under another the registry hands out what another config has made.
        name = f'predictor-{uuid.uuid4().hex}'
        visualizer = VISUALIZERS.build(dict(config.visualizer, name=name, vis_backends=None))
        visualizer.dataset_meta = self.model.dataset_meta
        return visualizer

    def _as_coco(self, found: InstanceData) -> list[dict]:
        """Objects in the words of COCO: boxes as x, y, width, height, masks as run lengths."""
        instances = []
        for number, (label, score) in enumerate(zip(found.labels, found.scores, strict=True)):
            left, top, right, bottom = found.bboxes[number].tolist()
            instance = dict(
                label=int(label),
                category=self.classes[label],
                score=float(score),
                bbox=[left, top, right - left, bottom - top],
            )
            if 'masks' in found:
                instance['segmentation'] = _run_lengths(found.masks[number])
            instances.append(instance)
        return instances


def _run_lengths(mask_HW: np.ndarray | dict) -> dict:
    if isinstance(mask_HW, dict):  # they are already, for large images
        return mask_HW
    from pycocotools import mask  # comes with mmdet, which segmentors do without

    runs = mask.encode(np.asfortranarray(mask_HW, np.uint8))
    return dict(runs, counts=runs['counts'].decode())
