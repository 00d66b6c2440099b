"""Backbones that a user could choose instead, with their published accuracy.

Accuracies are top-1 on ImageNet-1k at 224 px, of models trained on it alone: of InLine from its
paper (arXiv:2412.06590), of the others as their own papers and repositories give them. Two depend
on the recipe or the resolution: ResNet-50 is that of timm's recipe A1 (arXiv:2110.00476; 76.1 in
torchvision's first one), EfficientViT-B2 that of the table in mit-han-lab/efficientvit for 224 px
(82.7 at 256, 83.1 at 288). PVTv2 is from the table in whai362/PVT.
"""

from collections.abc import Callable
from functools import partial

import builders
from benchmark import Candidate, Case
from runners import Inference
from torch import nn

from mminline.models import InLinePVT, InLineSwin

OURS = {
    'InLine-PVT-S': (partial(builders.inline_backbone, InLinePVT, arch='small'), 82.0),
    'InLine-Swin-T': (partial(builders.inline_backbone, InLineSwin), 82.4),
}
# Models of timm.
PEERS = {
    'EfficientViT-B2': ('efficientvit_b2', 82.1),
    'ConvNeXt-T': ('convnext_tiny', 82.1),
    'ResNet-50': ('resnet50', 80.4),
    'Swin-T': ('swin_tiny_patch4_window7_224', 81.3),
    'MambaOut-T': ('mambaout_tiny', 82.7),
    'PVTv2-B2-Li': ('pvt_v2_b2_li', 82.1),
    'PVTv2-B2': ('pvt_v2_b2', 82.0),
}


def peer_cases(shape: tuple[int, int], batch: int) -> list[Case]:
    """Inference of our backbones and of those of timm, if it is installed."""
    candidates = [_candidate(name, *entry) for name, entry in OURS.items()]
    if builders.has_timm():
        candidates += [
            _candidate(name, partial(timm_backbone, model, tuple(shape)), accuracy)
            for name, (model, accuracy) in PEERS.items()
        ]
    make_input = partial(builders.random_image, batch)
    return [Case('Backbones, accuracy on ImageNet', shape, make_input, candidates)]


def timm_backbone(name: str, shape: tuple[int, int]) -> nn.Module:
    """Build a model of timm with random weights and a map of each stage as its output."""
    import timm

    sizes = dict(img_size=shape, strict_img_size=False) if name.startswith('swin') else {}
    return timm.create_model(name, pretrained=False, features_only=True, **sizes)


def _candidate(name: str, build: Callable[[], nn.Module], accuracy: float) -> Candidate:
    return Candidate(f'{name}, {accuracy} %', Inference, build)
