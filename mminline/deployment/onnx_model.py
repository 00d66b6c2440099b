"""An exported file as a model: images in, predictions in pixels of the image out."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..predictions import save_classes, save_instances
from ..visualization import draw_classes, draw_instances
from .class_maps import classify
from .masks import paste_masks, resize_masks
from .resizing import resize

TASKS = ('detector', 'segmentor')
# Least side of an image for files that do not say it: those of earlier versions.
SMALLEST = 32


class Instances(NamedTuple):
    """Objects of an image, best first.

    Attributes:
        boxes: Left, top, right and bottom in pixels of the image, ``(N, 4)``.
        scores: Score of each.
        labels: Index of the class of each.
        masks: Boolean masks of the size of the image, ``(N, H, W)``; None for boxes only.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None


class OnnxModel:
    """A detector or segmentor that ``tools/export.py`` wrote, on a CPU.

    Args:
        path: The file.
        score_thr: Detected objects with a lower score are left out, whatever threshold the file
            was exported with; None for that threshold.
        threads: Threads of onnxruntime; 0 for one a core.
    """

    def __init__(self, path: str | Path, score_thr: float | None = 0.3, threads: int = 0) -> None:
        import onnxruntime  # optional: pip install "mminline[export]"

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # no warning that score_threshold has a default
        options.intra_op_num_threads = threads
        try:
            self.session = onnxruntime.InferenceSession(
                str(path), options, providers=['CPUExecutionProvider']
            )
        except Exception as error:  # onnxruntime has classes of its own for each reason
            raise ValueError(f'{path} cannot be read as an ONNX file: {error}') from error
        stored = self.session.get_modelmeta().custom_metadata_map
        self.metadata: dict[str, Any] = {
            name.removeprefix('mminline.'): json.loads(value)
            for name, value in stored.items()
            if name.startswith('mminline.')
        }
        self.score_thr = score_thr
        self._check(path)
        self.classes, self.palette = self.metadata['classes'], self.metadata['palette']

    def _check(self, path: str | Path) -> None:
        """Raise if the file does not say how images have to be prepared for it."""
        task = self.metadata.get('what')
        if task not in TASKS:
            raise ValueError(
                f'{path} has to be a detector or segmentor of tools/export.py, got what={task}'
            )
        for name, reason in (
            ('classes', 'the names of its classes are not known'),
            ('resize', 'its test pipeline has steps other than Resize'),
            ('normalized', 'it was exported with --no-normalize'),
        ):
            if self.metadata[name] is None or self.metadata[name] is False:
                raise ValueError(f'{path} cannot be run on image files: {reason}')

        if task == 'segmentor' and self.metadata.get('scores') is None:
            raise ValueError(
                f'{path} was exported by an older mminline, without scores: export it again'
            )

    def _check_size(self, size: tuple[int, int]) -> None:
        """Raise if the file is for images of another size, or for larger ones."""
        fixed = self.session.get_inputs()[0].shape[2:]  # open sides have names
        if any(
            isinstance(side, int) and side != own for side, own in zip(fixed, size, strict=True)
        ):
            raise ValueError(
                f'the file takes images of {fixed[0]} x {fixed[1]}, got {size[0]} x {size[1]}: '
                'export it with --dynamic, and without --no-dynamic'
            )
        smallest = self.metadata.get('smallest_side', SMALLEST)
        if min(size) < smallest:
            raise ValueError(
                f'an image has to be at least {smallest} x {smallest} px for this file, resized it '
                f'is {size[0]} x {size[1]}'
            )

    @property
    def is_detector(self) -> bool:
        return self.metadata['what'] == 'detector'

    def predict(self, image_HWC: np.ndarray) -> Instances | np.ndarray:
        """Predict for an image as OpenCV reads it: objects, or the class of each pixel."""
        resized_HWC = resize(image_HWC, self.metadata['resize'])
        self._check_size(resized_HWC.shape[:2])
        sizes = image_HWC.shape[:2], resized_HWC.shape[:2]
        rgb_CHW = resized_HWC[..., ::-1].transpose(2, 0, 1)
        inputs = {'image': rgb_CHW[None].astype(np.float32)}
        if self.is_detector:
            if self.score_thr is not None and self.score_thr < self.metadata['thresholds']['score']:
                inputs['score_threshold'] = np.array([self.score_thr], np.float32)
            return self._as_instances(self.session.run(None, inputs), *sizes)
        if sizes[0] == sizes[1]:
            (class_map,) = self.session.run(['class_map'], inputs)
            return class_map[0]
        (scores,) = self.session.run(['scores'], inputs)
        return classify(scores[0], *sizes[::-1], **self.metadata['scores'])

    def _as_instances(
        self, outputs: list[np.ndarray], size: tuple[int, int], input_size: tuple[int, int]
    ) -> Instances:
        """Bring detections from the resized image to the image."""
        dets, labels, *masks = outputs
        kept = dets[:, 4] >= (-np.inf if self.score_thr is None else self.score_thr)
        boxes, scores = dets[kept, :4], dets[kept, 4]
        ratios = [side / resized for side, resized in zip(size, input_size, strict=True)]
        boxes = boxes * np.array([*ratios[::-1], *ratios[::-1]], np.float32)
        if not masks:
            return Instances(boxes, scores, labels[kept], None)
        masks = masks[0][kept]
        if masks.dtype == bool:
            masks = resize_masks(masks, size)
        else:
            masks = paste_masks(masks, boxes, size, self.metadata['thresholds']['mask'])
        return Instances(boxes, scores, labels[kept], masks)

    def draw(self, image_HWC: np.ndarray, prediction: Instances | np.ndarray) -> np.ndarray:
        """Draw a prediction over its image, blue first."""
        if not isinstance(prediction, Instances):
            return draw_classes(image_HWC, prediction, self.classes, self.palette)
        boxes, scores, labels, masks = prediction
        return draw_instances(image_HWC, boxes, labels, scores, masks, self.classes, self.palette)

    def save(
        self, prediction: Instances | np.ndarray, shape: tuple[int, int], path: str | Path
    ) -> None:
        """Write objects as ``path.json``, or the class of each pixel as ``path.png``."""
        if not isinstance(prediction, Instances):
            save_classes(f'{path}.png', prediction, len(self.classes))
            return
        boxes, scores, labels, masks = prediction
        save_instances(f'{path}.json', shape, boxes, labels, scores, masks, self.classes)
