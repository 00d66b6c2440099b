"""Prediction of Mask R-CNN, from an image to boxes and masks."""

from functools import partial

import builders
from benchmark import Candidate, Case
from runners import Detection


def detector_cases(
    shape: tuple[int, int], batch: int, proposals: int, precision: list[str], families: list[str]
) -> list[Case]:
    """Prediction of Mask R-CNN with backbones of each family, in one or more precisions."""
    make_input = partial(builders.random_image, batch)
    return [
        Case(
            f'Mask R-CNN with {builders.FAMILIES[family]}-T',
            shape,
            make_input,
            _make_candidates(family, proposals, precision),
        )
        for family in families
    ]


def _make_candidates(family: str, proposals: int, precision: list[str]) -> list[Candidate]:
    ours, softmax = (
        partial(builders.detector, f'mask-rcnn_{backbone}-t_fpn_1x_coco.py', proposals=proposals)
        for backbone in (f'inline-{family}', family)
    )
    softmax_name = f'softmax {builders.FAMILIES[family]} (mmdet)'
    plain = partial(ours, fast=False)
    candidates = [
        Candidate('ours', Detection, ours, 'inline'),
        Candidate('ours, fast=False', Detection, plain, 'inline'),
        Candidate('baseline implementation', Detection, partial(plain, baseline=True), 'inline'),
        Candidate(softmax_name, Detection, softmax),
    ]
    return candidates + [
        Candidate(f'{name}, {word}', Detection, partial(build, precision=word))
        for name, build in (('ours', ours), (softmax_name, softmax))
        for word in precision
        if word != 'float32'
    ]
