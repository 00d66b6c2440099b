"""Prediction of SemanticFPN, from the pixels of an image to the class of each."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from baselines import use_baseline
from benchmark import Candidate, Case
from builders import FAMILIES, randomize
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from runners import InferenceOfParts
from torch import Tensor, nn

from mminline.apis import Predictor, init_model

CONFIGS = Path(__file__).resolve().parents[1] / 'configs' / 'segmentation'
SEMANTIC_FPN = 'semantic-fpn_{}_40k_ade20k-512x512.py'
UPERNET = 'upernet_{}_160k_ade20k-512x512.py'


class Segmentation(InferenceOfParts):
    """Prediction by ``Predictor``. What follows the head is the rest of the parts."""

    PARTS = {part: (part, 'forward') for part in ('backbone', 'neck', 'decode_head')}

    def call(self, image_HWC: np.ndarray) -> Tensor:
        return Predictor(self.model).predict(image_HWC).pred_sem_seg.data

    def measure_results(self, image_HWC: np.ndarray) -> dict[str, Tensor]:
        """Class map, and the scores of the head it comes from."""
        return self.scores(image_HWC) | dict(classes=self.call(image_HWC).float())

    def scores(self, image_HWC: np.ndarray) -> dict[str, Tensor]:
        batch = pseudo_collate([Predictor(self.model).pipeline(image_HWC)])
        data = self.model.data_preprocessor(batch, False)
        return dict(scores=self.model(**data, mode='tensor'))


class SegmentationOfMmseg(Segmentation):
    """Prediction by ``test_step`` of mmseg, with the same steps before it."""

    def call(self, image_HWC: np.ndarray) -> Tensor:
        batch = pseudo_collate([Predictor(self.model).pipeline(image_HWC)])
        (sample,) = self.model.test_step(batch)
        return sample.pred_sem_seg.data


class OtherRounding(SegmentationOfMmseg):
    """The same for a model whose scores are rounded differently, and with them some classes."""

    def measure_results(self, image_HWC: np.ndarray) -> dict[str, Tensor]:
        return self.scores(image_HWC)


def segmentor_cases(
    shape: tuple[int, int], precision: list[str], families: list[str]
) -> list[Case]:
    """Prediction of SemanticFPN with backbones of each family, in one or more precisions."""
    return [
        Case(
            f'SemanticFPN with {FAMILIES[family]}-T, 150 classes',
            shape,
            random_pixels,
            _make_candidates(family, precision),
        )
        for family in families
    ]


def _make_candidates(family: str, precision: list[str]) -> list[Candidate]:
    ours, softmax = (
        partial(build_segmentor, f'{backbone}-t') for backbone in (f'inline-{family}', family)
    )
    softmax_name = f'softmax {FAMILIES[family]} ({"mmdet" if family == "pvt" else "mmseg"})'
    plain = partial(ours, fast=False)
    candidates = [
        Candidate('ours', Segmentation, ours, 'inline'),
        Candidate("ours, mmseg's predict", SegmentationOfMmseg, ours, 'inline'),
        Candidate("ours, fast=False, mmseg's predict", OtherRounding, plain, 'inline'),
        Candidate(
            'baseline implementation', OtherRounding, partial(plain, baseline=True), 'inline'
        ),
        Candidate(softmax_name, SegmentationOfMmseg, softmax),
    ]
    return candidates + [
        Candidate(f'{name}, {word}', runner, partial(build, precision=word))
        for name, runner, build in (
            ('ours', Segmentation, ours),
            (softmax_name, SegmentationOfMmseg, softmax),
        )
        for word in precision
        if word != 'float32'
    ]


def build_segmentor(
    backbone: str, baseline: bool = False, precision: str = 'float32', fast: bool = True
) -> nn.Module:
    """Build a SemanticFPN with random weights, for images that keep their size.

    Args:
        backbone: Name of its backbone in the names of configs.
        baseline: Whether its backbone is the baseline implementation.
        precision: Precision that it runs in.
        fast: Whether neck and head run in their faster form.
    """
    config = read_config(backbone)
    steps = config.test_dataloader.dataset.pipeline
    config.test_dataloader.dataset.pipeline = [step for step in steps if step.type != 'Resize']
    torch.manual_seed(0)
    model = init_model(config, device='cpu', precision=precision, fast=fast)
    torch.manual_seed(0)
    randomize(model.backbone)
    if baseline:
        use_baseline(model.backbone)
    return model


def read_config(backbone: str) -> Config:
    """Config of a SemanticFPN. Swin comes from that of an UperNet, which has no neck to compare."""
    is_pvt = 'pvt' in backbone
    name = SEMANTIC_FPN.format(backbone if is_pvt else 'inline-pvt-t')
    config = Config.fromfile(CONFIGS / name)
    if not is_pvt:
        upernet = Config.fromfile(CONFIGS / UPERNET.format(backbone)).model
        config.model.backbone = upernet.backbone
        config.model.neck.in_channels = upernet.decode_head.in_channels
    return config


def random_pixels(height: int, width: int) -> tuple[np.ndarray]:
    """Make an image as OpenCV reads it."""
    return (np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8),)
