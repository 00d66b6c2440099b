"""Score of an exported file on the test data of a config, beside that of PyTorch."""

from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from mmengine.utils import ProgressBar

from ...deployment import Instances, OnnxModel
from ...predictions import read_image
from .exporter import ExportedFile

Scores = dict[str, float]


def evaluate(exported: ExportedFile, config: Config) -> tuple[Scores, Scores]:
    """Compute the metric of a config for a file and for the model it was made of.

    The file runs on the image files of the data set, by the steps of ``tools/infer_onnx.py``; the
    model by the steps of mmdet or mmseg.

    Args:
        exported: ONNX file of a whole detector or segmentor.
        config: Config of its model, with ``test_dataloader`` and ``test_evaluator``.

    Returns:
        Scores of the file and of the model, by name.
    """
    init_default_scope(config.get('default_scope', 'mmengine'))
    settings = dict(config.test_dataloader, num_workers=0, persistent_workers=False)
    loader = Runner.build_dataloader(settings)
    file = OnnxModel(exported.path, score_thr=None, threads=torch.get_num_threads())
    of_file, of_model = (Evaluator(config.test_evaluator) for _ in range(2))
    for evaluator in (of_file, of_model):
        evaluator.dataset_meta = loader.dataset.metainfo
    progress = ProgressBar(len(loader))
    for batch in loader:
        with torch.no_grad():
            samples = exported.model.test_step(batch)
        of_model.process(samples, batch)
        for sample in samples:
            _set_prediction(sample, file.predict(read_image(Path(sample.img_path))))
        of_file.process(samples, batch)
        progress.update()
    print()
    return of_file.evaluate(len(loader.dataset)), of_model.evaluate(len(loader.dataset))


def _set_prediction(sample: BaseDataElement, found: Instances | np.ndarray) -> None:
    """Put what a file found in the place of what the model found."""
    if not isinstance(found, Instances):
        sample.pred_sem_seg = PixelData(data=torch.from_numpy(found)[None].long())
        return
    boxes, scores, labels, masks = found
    instances = InstanceData(
        bboxes=torch.from_numpy(boxes),
        scores=torch.from_numpy(scores),
        labels=torch.from_numpy(labels),
    )
    if masks is not None:
        instances.masks = torch.from_numpy(masks)
    sample.pred_instances = instances
