"""Backbones over several processes: what each of them computes of a case, and one alone."""

import itertools
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

import mminline
from helpers.tiny import build, image
from mminline.execution import cache, decision
from mminline.models import InLinePVT, InLineSwin

BACKBONES = {'pvt': InLinePVT, 'swin': InLineSwin}


@dataclass
class Case:
    """A backbone, and a batch of images that is cut into slabs.

    Args:
        heights: Rows of each slab.
        backbone: Name in ``BACKBONES``.
        options: Options of the backbone.
        width: Columns of the batch.
        train: Whether to train, or to run inference.
        sizes: Sizes of the images, if the batch is padded.
        hooked: Whether blocks have a hook, which makes them run plainly.
    """

    heights: tuple[int, ...]
    backbone: str = 'pvt'
    options: dict = field(default_factory=dict)
    width: int = 72
    train: bool = True
    sizes: tuple[tuple[int, int], ...] = ()
    hooked: bool = False

    def edges(self, stride: int = 1) -> list[int]:
        return [-(-edge // stride) for edge in (0, *itertools.accumulate(self.heights))]

    def model(self) -> nn.Module:
        model = build(BACKBONES[self.backbone], **self.options).double().train(self.train)
        for stage in model.stages if self.hooked else ():
            for block in stage.blocks:
                block.register_forward_hook(lambda *_: None)
        return model

    def images(self) -> Tensor:
        images = image(2, 3, sum(self.heights), self.width, dtype=torch.float64)
        for one, (height, width) in zip(images, self.sizes, strict=False):
            one[:, height:] = 0
            one[:, :, width:] = 0
        return images


def run_alone(case: Case) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Maps and gradients of one process, of blocks that run plainly."""
    os.environ[decision.VARIABLE] = 'plain'
    try:
        return compute(case, case.images(), 0, 1)
    finally:
        del os.environ[decision.VARIABLE]


def run_cases(rank: int, cases: dict[str, Case]) -> dict[str, tuple]:
    """Run cases, each on as many processes as it has slabs."""
    cache.band_bytes = lambda device: 64 * 64 * 8  # a few rows a band
    groups = {count: dist.new_group(list(range(count))) for count in (2, 3)}
    results = {}
    for name, case in cases.items():
        count = len(case.heights)
        if rank < count:
            top, bottom = case.edges()[rank : rank + 2]
            with mminline.spatial_parallel(groups[count]):
                results[name] = compute(case, case.images()[:, :, top:bottom], rank, count)
    return results


def compute(
    case: Case, own_images: Tensor, rank: int, count: int
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Own rows of the maps, and gradients of the own part of the loss."""
    model, own_images = case.model(), own_images.clone().requires_grad_(case.train)
    torch.manual_seed(3)
    with torch.set_grad_enabled(case.train):
        maps = model(own_images)
        if case.train:
            own_loss(case, maps, model.strides, rank, count).backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    return [each.detach() for each in maps], {**gradients, 'image': own_images.grad}


def own_loss(
    case: Case, maps: tuple[Tensor, ...], strides: tuple[int, ...], rank: int, count: int
) -> Tensor:
    """Own part of a loss that gives every value of the whole maps another gradient."""
    loss = 0
    for each, stride in zip(maps, strides, strict=True):
        edges = case.edges(stride) if count > 1 else case.edges(stride)[:: len(case.heights)]
        weights = image(*each.shape[:2], edges[-1], each.shape[3], dtype=each.dtype)
        loss = loss + (each * weights[:, :, edges[rank] : edges[rank + 1]]).sum()
    return loss
