"""Predictions for images at their own resolution: at once where they fit, else in parts."""

import contextlib
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import nn

from ..apis import Predictor, build_test_pipeline
from ..replaced import replaced
from .backbone import compute_maps
from .errors import CannotCutError
from .free_memory import free_bytes
from .image import ModelImage
from .memory import ordinary_bytes
from .predict import cut, is_segmentor, predict
from .tiles import UNIT

PICTURE_SIDE = 1600
PROBE_SIDE = 64


class FullSizePredictor(Predictor):
    """Predictions of a detector or segmentor for images that are not resized.

    Images are padded to multiples of 32. A segmentor sees the whole image, also if its config
    asks for a sliding window. The model has these settings during a prediction only.

    Args:
        model: From ``mminline.apis.init_model``.
        score_thr: Detected objects with a lower score are left out.
        large: 'on' computes images in parts, 'off' at once, 'auto' in parts if they would not fit
            into the memory that is free. The result is the same.
    """

    def __init__(self, model: nn.Module, score_thr: float = 0.3, large: str = 'auto') -> None:
        if large not in ('auto', 'on', 'off'):
            raise ValueError(f"large has to be 'auto', 'on' or 'off', got {large=}")
        super().__init__(model, score_thr)
        self.pipeline = build_test_pipeline(model.cfg, full_size=True)
        self.large = large

    def predict(self, image_HWC: np.ndarray) -> BaseDataElement | None:
        """Predict for an image as OpenCV reads it, or one of ``mminline.large.open_image``."""
        if not self._in_parts(image_HWC):
            with self._whole_and_padded():
                return super().predict(image_HWC[0 : image_HWC.shape[0]])
        result = predict(self.model, image_HWC, report=show_progress)
        if result is None:  # the first of several processes has it
            return None
        sample = BaseDataElement(metainfo=dict(ori_shape=tuple(image_HWC.shape[:2]), parts=True))
        if is_segmentor(self.model):
            sample.pred_sem_seg = PixelData(data=torch.from_numpy(result)[None])
        else:
            sample.pred_instances = result[result.scores >= self.score_thr].cpu()
        return sample

    @contextlib.contextmanager
    def _whole_and_padded(self) -> Iterator[None]:
        """Let the model pad images to multiples of 32, and see them whole."""
        model, preprocessor = self.model, self.model.data_preprocessor
        with contextlib.ExitStack() as stack:
            if is_segmentor(model):
                whole = ConfigDict(model.test_cfg, mode='whole')
                stack.enter_context(replaced(model, 'test_cfg', whole))
                padded = dict(size_divisor=UNIT)
                stack.enter_context(replaced(preprocessor, 'test_cfg', padded))
            else:
                stack.enter_context(replaced(preprocessor, 'pad_size_divisor', UNIT))
            yield

    def _in_parts(self, image_HWC: np.ndarray) -> bool:
        """Decide how to compute an image, and say so if it has to be in parts."""
        if self.large != 'auto':
            return self.large == 'on'
        try:
            needed = self._estimate(image_HWC.shape[:2])
        except CannotCutError:
            return False
        free = free_bytes(next(self.model.parameters()).device)
        if needed < free:
            return False
        height, width = image_HWC.shape[:2]
        print(
            f'\n{width} x {height} px need about {needed / 1e9:.1f} GB at once, and '
            f'{free / 1e9:.1f} GB are free: computed in parts.',
            file=sys.stderr,
        )
        return True

    @torch.inference_mode()
    def _estimate(self, shape: tuple[int, int]) -> float:
        probe = ModelImage(self.model, np.zeros((PROBE_SIDE, PROBE_SIDE, 3), np.uint8))
        maps = compute_maps(self.model.backbone, probe, lambda *_: None)
        return ordinary_bytes(cut(self.model, maps), maps, shape[0] * shape[1])

    def draw(self, image_HWC: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """Draw a prediction; one computed in parts over a reduced image."""
        if 'parts' not in sample:
            return super().draw(image_HWC[0 : image_HWC.shape[0]], sample)
        step = -(-max(image_HWC.shape[:2]) // PICTURE_SIDE)
        # In bands, because a file decodes all of its tiles that a band touches.
        band = step * 256
        tops = range(0, image_HWC.shape[0], band)
        reduced_HWC = np.concatenate([image_HWC[top : top + band][::step, ::step] for top in tops])
        reduced = BaseDataElement(metainfo=dict(ori_shape=reduced_HWC.shape[:2]))
        if 'pred_sem_seg' in sample:
            classes = sample.pred_sem_seg.data[:, ::step, ::step]
            reduced.pred_sem_seg = PixelData(data=classes)
        else:
            reduced.pred_instances = _reduce(sample.pred_instances, step, reduced_HWC.shape[:2])
        return super().draw(np.ascontiguousarray(reduced_HWC), reduced)


def _reduce(found: InstanceData, step: int, shape: tuple[int, int]) -> InstanceData:
    """Scale boxes, and unpack masks at the size of a reduced image, one at a time."""
    reduced = InstanceData(bboxes=found.bboxes / step, scores=found.scores, labels=found.labels)
    if 'masks' in found:
        from pycocotools import mask  # comes with mmdet

        pixels = [mask.decode(each)[::step, ::step].astype(bool) for each in found.masks]
        reduced.masks = torch.from_numpy(
            np.stack(pixels) if pixels else np.zeros((0, *shape), bool)
        )
    return reduced


class Progress:
    """Line with the part of the model that runs, and the time it still takes."""

    def __init__(self) -> None:
        self._part = None
        self._start = 0.0

    def __call__(self, part: str, done: int, total: int) -> None:
        if part != self._part or done == 1:
            # The first step starts the clock: when it began is not known.
            self._part, self._start = part, time.monotonic()
            left = ''
        else:
            seconds = (time.monotonic() - self._start) / (done - 1) * (total - done)
            left = f', {seconds:.0f} s left'
        # A terminal rewrites its last line; elsewhere each step is a line.
        rewrite, end = ('\r\033[K', '') if sys.stderr.isatty() else ('', '\n')
        end = '\n' if done == total else end
        print(f'{rewrite}{part}: {done} of {total}{left}', end=end, file=sys.stderr, flush=True)


show_progress = Progress()
