"""Backbones over several processes: what each of them computes of a case, and one alone."""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import mminline
from helpers.lost_peer import end_here, seconds_since_end
from helpers.tiny import build, image
from mminline import execution
from mminline.execution import cache, decision, slabs
from mminline.layers import Block, InLineAttention, SoftmaxAttention
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
        dtype: Of weights and images.
    """

    heights: tuple[int, ...]
    backbone: str = 'pvt'
    options: dict = field(default_factory=dict)
    width: int = 72
    train: bool = True
    sizes: tuple[tuple[int, int], ...] = ()
    hooked: bool = False
    dtype: torch.dtype = torch.float64

    def edges(self, stride: int = 1) -> list[int]:
        return [-(-edge // stride) for edge in (0, *itertools.accumulate(self.heights))]

    def model(self) -> nn.Module:
        model = build(BACKBONES[self.backbone], **self.options).to(self.dtype).train(self.train)
        for stage in model.stages if self.hooked else ():
            for block in stage.blocks:
                block.register_forward_hook(lambda *_: None)
        return model

    def images(self) -> Tensor:
        images = image(2, 3, sum(self.heights), self.width, dtype=self.dtype)
        for one, (height, width) in zip(images, self.sizes, strict=False):
            one[:, height:] = 0
            one[:, :, width:] = 0
        return images


def run_alone(case: Case) -> tuple[list[Tensor], dict[str, Tensor], set[str]]:
    """Maps, gradients and forms of one process, of blocks that run plainly."""
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
) -> tuple[list[Tensor], dict[str, Tensor], set[str]]:
    """Own rows of the maps, gradients of the own part of the loss, forms in which blocks ran."""
    model, own_images = case.model(), own_images.clone().requires_grad_(case.train)
    forms, choose = set(), decision.choose

    def note(*args) -> decision.Decision:
        forms.add(choose(*args).name)
        return choose(*args)

    torch.manual_seed(3)
    with torch.set_grad_enabled(case.train), patch.object(execution, 'choose', note):
        maps = model(own_images)
        if case.train:
            own_loss(case, maps, model.strides, rank, count).backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    return [each.detach() for each in maps], {**gradients, 'image': own_images.grad}, forms


def own_loss(
    case: Case,
    maps: tuple[Tensor, ...],
    strides: tuple[int, ...],
    rank: int,
    count: int,
    images: slice = slice(None),
) -> Tensor:
    """Own part of a loss that gives every value of the whole maps another gradient."""
    loss = 0
    for each, stride in zip(maps, strides, strict=True):
        edges = case.edges(stride) if count > 1 else case.edges(stride)[:: len(case.heights)]
        weights = image(2, each.shape[1], edges[-1], each.shape[3], dtype=each.dtype)[images]
        loss = loss + (each * weights[:, :, edges[rank] : edges[rank + 1]]).sum()
    return loss


def train_on_mesh(rank: int, wrapper: str, case: Case) -> dict[str, Tensor]:
    """Gradients of two images on a mesh of data x space."""
    mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('data', 'space'))
    which, place = mesh.get_coordinate()
    model = wrapped = case.model()
    if wrapper == 'ddp':
        wrapped = DistributedDataParallel(model)
    else:
        for stage in model.stages:
            for block in stage.blocks:
                fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    top, bottom = case.edges()[place : place + 2]
    own = slice(which, which + 1)
    with mminline.spatial_parallel(mesh.get_group('space')):
        maps = wrapped(case.images()[own, :, top:bottom])
    # Gradients are averaged over all processes; those of one image have to be added up.
    loss = own_loss(case, maps, model.strides, place, 2, own)
    (mesh['space'].size() * loss).backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    if wrapper == 'fsdp2':
        gradients = {name: grad.full_tensor() for name, grad in gradients.items()}
    return gradients


def count_traffic(rank: int, channels: int, hw_shape: tuple[int, int]) -> dict[str, int]:
    """Bytes that one block adds up over the processes, forward."""
    traffic, all_reduce = {}, dist.all_reduce

    def count(tensor: Tensor, *args, **kwargs) -> None:
        traffic[name] = traffic.get(name, 0) + tensor.nbytes
        all_reduce(tensor, *args, **kwargs)

    dist.all_reduce = count
    rows, width = hw_shape
    slab = slabs.SlabShape([0, rows, 2 * rows], width, dist.group.WORLD)
    block = Block(InLineAttention(channels, 2), channels, 2)
    x_BLC = torch.randn(1, rows * width, channels)
    for name in ('fused', 'streamed'):
        with torch.set_grad_enabled(name == 'fused'):
            block.train(name == 'fused')
            assert execution.choose(block, x_BLC, slab).name == name
            execution.run(block, x_BLC, slab)
    return traffic


def list_refusals(rank: int) -> dict[str, str]:
    """Messages of what cannot run over processes."""

    def call(model: nn.Module, height: int = 64, width: int = 64) -> None:
        with mminline.spatial_parallel():
            model(image(2, 3, height, width))

    def refuse(name: str, function: Callable, *args) -> None:
        try:
            function(*args)
        except ValueError as error:
            messages[name] = str(error)

    def batch_of_two_heights() -> None:
        images = image(2, 3, 64, 64)
        images[0] *= rank == 0
        with mminline.spatial_parallel():
            build(InLinePVT)(images)

    def call_layer(layer: nn.Module) -> None:
        slab = slabs.SlabShape([0, 9, 18], 18, dist.group.WORLD)
        execution.run(layer, torch.randn(1, 162, 8), slab)

    def compile_block() -> None:
        slab = slabs.SlabShape([0, 9, 18], 18, dist.group.WORLD)
        block = Block(InLineAttention(8, 2), 8, 2)
        torch.jit.trace(lambda x_BLC: execution.run(block, x_BLC, slab), torch.randn(1, 162, 8))

    messages = {}
    hooked = InLineAttention(8, 2)
    hooked.register_forward_hook(lambda *_: None)
    refuse('dropout', call, build(InLinePVT, drop_rate=0.1))
    refuse('window', call, build(InLineSwin, inline_window=7))
    refuse('height', call, build(InLinePVT), 64 if rank else 50)
    refuse('width', call, build(InLinePVT), 64, 64 if rank else 50)
    refuse('small', call, build(InLinePVT), 32, 16)
    refuse('channels', call, build(InLinePVT, in_channels=4))
    refuse('padding', batch_of_two_heights)
    refuse('softmax', call_layer, SoftmaxAttention(8, 2, window_size=None))
    refuse('hook', call_layer, hooked)
    refuse('graph', compile_block)
    with mminline.spatial_parallel():
        block = Block(InLineAttention(8, 2), 8, 2)
        refuse('whole', execution.run, block, torch.randn(1, 16, 8), (4, 4))
    return messages


def lose_peer(rank: int, folder: str) -> tuple[str, float]:
    """Message of a process whose peer is killed while they share an image, and its time."""
    model, images = build(InLinePVT), image(1, 3, 64, 64)
    with mminline.spatial_parallel():
        model(images)
        if rank == 1:
            end_here(folder)
        try:
            model(images)[-1].sum().backward()
        except slabs.LostProcessError as error:
            return str(error), seconds_since_end(folder)


def look_around(rank: int) -> tuple[Tensor, Tensor]:
    """Own rows of a convolution over a map in two slabs, and the gradient of the own rows."""
    whole = image(1, 2, 9, 5, dtype=torch.float64)
    layer = nn.Conv2d(2, 3, 7, padding=3).double()
    layer.load_state_dict(look_alone()[2])
    own = whole.split([2, 7], dim=2)[rank].clone().requires_grad_()
    with mminline.spatial_parallel():
        widened, above = slabs.add_rows(own, 3)
    out = layer(widened)[:, :, above : above + own.shape[2]]
    (out * out).sum().backward()
    return out.detach(), own.grad


def look_alone() -> tuple[Tensor, Tensor, dict]:
    """The same in one process, and the weights."""
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 7, padding=3).double()
    whole = image(1, 2, 9, 5, dtype=torch.float64).requires_grad_()
    out = layer(whole)
    (out * out).sum().backward()
    return out.detach(), whole.grad, layer.state_dict()


def run_text(rank: int, text: str) -> None:
    """Run a program."""
    exec(compile(text, 'example', 'exec'), {'__name__': 'example'})
