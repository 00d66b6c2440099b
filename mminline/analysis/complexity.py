"""Multiply-adds and parameters of a whole detector or segmentor, without images or weights.

The convention of the literature: the number of multiply-adds is called FLOPs, two-stage heads
see 1000 proposals and 100 masks, a segmentor runs without its auxiliary head. How many
proposals survive with given weights plays no part, so the count is the same each time.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
    with _attention_form(folded=False):
        usual_macs = _count_macs(model, hw_shape)
    has_forms = any(isinstance(module, InLineAttention) for module in model.modules())
    with _attention_form(folded=None):
        macs = _count_macs(model, hw_shape) if has_forms else usual_macs
    return Complexity(usual_macs, macs, sum(part.numel() for part in model.parameters()))


@contextlib.contextmanager
def _attention_form(folded: bool | None) -> Iterator[None]:
    before = InLineAttention.folded
    InLineAttention.folded = folded
    try:
        yield
    finally:
        InLineAttention.folded = before


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
    # PyTorch's counter knows the product that makes a new tensor, not the one that adds in place.
    in_place = {torch.ops.aten.baddbmm_: _added_product_flops}
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False, custom_mapping=in_place) as counter,
        ):
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)


def _added_product_flops(_: Sequence, left: Sequence, right: Sequence, **__: Any) -> int:
    """Operations of ``total.baddbmm_(left, right)``, given the shapes."""
    return 2 * math.prod(left) * right[-1]


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
