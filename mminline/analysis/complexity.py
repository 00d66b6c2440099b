"""Multiply-adds and parameters of a whole detector or segmentor, without images or weights.

The convention of the literature: the number of multiply-adds is called FLOPs, two-stage heads
see 1000 proposals and 100 masks, a segmentor runs without its auxiliary head. How many
proposals survive with given weights plays no part, so the count is the same each time.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from mmengine.structures import BaseDataElement
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..layers import InLineAttention

PROPOSALS = 1000
MASKS = 100


class Complexity(NamedTuple):
    """Cost of a model for one image."""

    usual_macs: int  # multiply-adds with queries and keys built: the published convention
    macs: int  # multiply-adds as executed: folded wherever that is cheaper
    parameters: int


def measure_complexity(model: nn.Module, hw_shape: tuple[int, int]) -> Complexity:
    """Count the multiply-adds and parameters of a model of mmdet or mmseg, or of a backbone.

    Args:
        model: The model; it is put into evaluation mode.
        hw_shape: Height and width of the image.
    """
    model.eval()
    layers = [module for module in model.modules() if isinstance(module, InLineAttention)]
    macs = _count_macs(model, hw_shape)
    with _unfolded(layers):
        usual_macs = _count_macs(model, hw_shape) if layers else macs
    return Complexity(usual_macs, macs, sum(part.numel() for part in model.parameters()))


@contextlib.contextmanager
def _unfolded(layers: list[InLineAttention]) -> Iterator[None]:
    """Have these very layers build queries and keys."""
    forms = [layer.folded for layer in layers]
    for layer in layers:
        layer.folded = False
    try:
        yield
    finally:
        for layer, form in zip(layers, forms, strict=True):
            layer.folded = form


def _count_macs(model: nn.Module, hw_shape: tuple[int, int]) -> int:
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _counter() as counter:
            _run(model, hw_shape)
    except RuntimeError:
        # Some transformers read values of tensors, which fake ones have not: DINO does.
        with _counter() as counter:
            _run(model, hw_shape)
    return counter.get_total_flops() // 2


@contextlib.contextmanager
def _counter() -> Iterator[FlopCounterMode]:
    """Count products and convolutions; keep attention from fused kernels, which count as none."""
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)


def _run(model: nn.Module, hw_shape: tuple[int, int]) -> None:
    image = torch.zeros(1, 3, *hw_shape)
    if hasattr(model, 'roi_head'):
        _run_two_stages(model, image)
    elif hasattr(model, 'backbone'):
        sample = BaseDataElement(metainfo=dict(img_shape=hw_shape, batch_input_shape=hw_shape))
        model(image, [sample], mode='tensor')
    else:
        model(image)


def _run_two_stages(model: nn.Module, image: torch.Tensor) -> None:
    model.rpn_head(model.extract_feat(image))
    roi_head = model.roi_head
    _run_head(roi_head.bbox_head, roi_head.bbox_roi_extractor, PROPOSALS)
    if roi_head.with_mask:
        _run_head(roi_head.mask_head, roi_head.mask_roi_extractor, MASKS)


def _run_head(heads: nn.Module, extractors: nn.Module, num_rois: int) -> None:
    """Run a head, or each of a cascade, on the features of regions."""
    for head, extractor in zip(_listed(heads), _listed(extractors), strict=True):
        side = extractor.roi_layers[0].output_size
        head(torch.zeros(num_rois, extractor.out_channels, *side))


def _listed(module: nn.Module) -> Iterable[nn.Module]:
    return module if isinstance(module, nn.ModuleList) else [module]
