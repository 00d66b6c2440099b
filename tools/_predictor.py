"""A trained detector or segmentor: predictions for an image, as a picture and as data."""

import json
import uuid
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmcv.transforms import Compose
from mmengine.config import Config, ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, VISUALIZERS, init_default_scope
from mmengine.structures import BaseDataElement, InstanceData
from pycocotools import mask as run_lengths
from torch import nn

import _launch
from mminline.checkpoints import read_checkpoint, unwrap


class Predictor:
    """The model of a config, with the steps that its test data goes through.

    Both libraries have functions for this; mmseg's leaves the test data aside, and reads a
    pipeline that need not be the one a model is tested with.

    Args:
        config: The config.
        checkpoint: File or web address of all weights.
        device: Where the model runs.
        score_thr: Detected objects with a lower score are left out.
    """

    def __init__(self, config: Config, checkpoint: str, device: str, score_thr: float) -> None:
        init_default_scope(config.default_scope)
        dataset = _test_dataset(config)
        self.score_thr = score_thr
        self.pipeline = Compose(_image_steps(dataset.pipeline))
        self.model = load_model(config, checkpoint)
        meta = DATASETS.build(dict(dataset, lazy_init=True)).metainfo | self.model.dataset_meta
        self.classes = meta['classes']
        # A name of its own: under another the registry hands out what another config has made.
        name = f'predictor-{uuid.uuid4().hex}'
        self.visualizer = VISUALIZERS.build(dict(config.visualizer, name=name, vis_backends=None))
        self.visualizer.dataset_meta = meta
        self.model.to(device)

    @torch.inference_mode()
    def predict(self, image_HWC: np.ndarray) -> BaseDataElement:
        """Predict for an image as OpenCV reads it, blue first."""
        inputs = self.pipeline(dict(img=image_HWC, img_id=0))
        (sample,) = self.model.test_step(pseudo_collate([inputs]))
        if 'pred_instances' in sample:
            found = sample.pred_instances
            sample.pred_instances = found[found.scores >= self.score_thr]
        return sample.cpu()

    def draw(self, image_HWC: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """Draw a prediction over its image, blue first again."""
        options = dict(pred_score_thr=0) if 'pred_instances' in sample else {}
        image = mmcv.bgr2rgb(image_HWC)
        self.visualizer.add_datasample('prediction', image, sample, draw_gt=False, **options)
        return mmcv.rgb2bgr(self.visualizer.get_image())

    def save(self, sample: BaseDataElement, path: Path) -> None:
        """Write objects as ``path.json``, or the class of each pixel as ``path.png``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if 'pred_instances' in sample:
            height, width = sample.ori_shape
            found = self._as_coco(sample.pred_instances.numpy())
            text = json.dumps(dict(height=height, width=width, instances=found))
            path.with_name(f'{path.name}.json').write_text(text + '\n')
        else:
            indices_HW = sample.pred_sem_seg.data[0].numpy()
            indices_HW = indices_HW.astype(np.uint8 if len(self.classes) <= 256 else np.uint16)
            mmcv.imwrite(indices_HW, f'{path}.png')

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
                runs = run_lengths.encode(np.asfortranarray(found.masks[number], np.uint8))
                instance['segmentation'] = dict(runs, counts=runs['counts'].decode())
            instances.append(instance)
        return instances


def load_model(config: Config, checkpoint: str) -> nn.Module:
    """Build the model of a config and fill it completely, or end the program."""
    if 'backbone' in config.model:  # the checkpoint has its weights
        config.model.backbone.init_cfg = None
    model = revert_sync_batchnorm(MODELS.build(config.model))
    saved = read_checkpoint(checkpoint)
    weights = unwrap(saved)
    _launch.check_whole(model, weights, checkpoint)
    model.load_state_dict(weights, strict=False)
    # Class names, under names that were in capitals once.
    meta = saved.get('meta', {}).get('dataset_meta') or {}
    model.dataset_meta = {name.lower(): value for name, value in meta.items()}
    return model.eval()


def _test_dataset(config: Config) -> ConfigDict:
    dataset = config.test_dataloader.dataset
    while 'pipeline' not in dataset:  # wrapped in others
        dataset = dataset.get('dataset') or dataset.datasets[0]
    return dataset


def _image_steps(pipeline: list[dict]) -> list[dict]:
    """The steps of a test pipeline for an image in memory, of which no truth is known."""
    load, *steps = pipeline
    return [
        dict(load, type='LoadImageFromNDArray'),
        *(step for step in steps if not step['type'].endswith('Annotations')),
    ]
