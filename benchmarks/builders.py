"""Builders of models, with random weights from a fixed seed, and of their inputs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from baselines import use_baseline
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import init_default_scope
from torch import Tensor, nn

from mminline.apis import accelerate, set_precision
from mminline.layers import InLineAttention, SoftmaxAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin
from mminline.models.backbones.archs import DEIT_ARCHS

CLASS_WEIGHT_STD = 1.0
# Families of backbones, as in the names of configs and in titles.
FAMILIES = dict(pvt='PVT', swin='Swin')
CONFIGS = Path(__file__).resolve().parents[1] / 'configs'


def inline_backbone(
    family: type[InLinePVT | InLineSwin | InLineDeiT],
    convert: Callable[[nn.Module], nn.Module] | None = None,
    **options,
) -> nn.Module:
    """Build a backbone of size tiny.

    Args:
        family: Class of the backbone.
        convert: Replaces parts of the backbone by baselines; the weights stay the same.
        **options: Arguments of the backbone.
    """
    torch.manual_seed(0)
    backbone = randomize(family(**options))
    return convert(backbone) if convert else backbone


def in_precision(build: Callable[[], nn.Module], precision: str) -> nn.Module:
    """Build a model that runs in a precision."""
    model = build()
    set_precision(model, precision)
    return model


def softmax_swin(window: int, shape: tuple[int, int]) -> nn.Module:
    """Build Swin-T with softmax attention in windows of a size, or over maps that are smaller.

    Args:
        window: Side of the windows in all stages.
        shape: Height and width of the image.
    """
    backbone = inline_backbone(InLineSwin)
    for stage, stride in zip(backbone.stages, backbone.strides, strict=True):
        for index, block in enumerate(stage.blocks):
            channels, heads = block.attn.embed_dims, block.attn.num_heads
            side = min(window, min(shape) // stride)
            block.attn = SoftmaxAttention(channels, heads, side, shifted=index % 2 == 1)
    return randomize(backbone)


def softmax_deit() -> nn.Module:
    """Build DeiT-T, which has half as many heads as InLine-DeiT-T."""
    attention = dict(type='SoftmaxAttention', window_size=None)
    arch = dict(DEIT_ARCHS['tiny'], num_heads=(3,))
    return inline_backbone(InLineDeiT, arch=arch, attention=attention)


def inline_layer(stage: int, **options) -> InLineAttention:
    """Build the first attention layer of a stage of InLine-PVT-T."""
    return inline_backbone(InLinePVT, **options).stages[stage].blocks[0].attn


def layer_baseline(baseline: type[nn.Module], stage: int, **options) -> nn.Module:
    """Build a baseline of an attention layer with the weights of that layer."""
    return baseline(inline_layer(stage), **options)


def mmdet_backbone(name: str, **options) -> nn.Module:
    """Build a backbone of mmdet."""
    from mmdet import models

    return getattr(models, name)(**options)


def timm_swin(shape: tuple[int, int]) -> nn.Module:
    """Build timm's Swin of size tiny, with a map of each stage as its output."""
    import timm

    return timm.create_model(
        'swin_tiny_patch4_window7_224', features_only=True, img_size=shape, strict_img_size=False
    )


def timm_convnext() -> nn.Module:
    """Build timm's ConvNeXt of size tiny, with a map of each stage as its output."""
    import timm

    return timm.create_model('convnext_tiny', features_only=True)


def has_timm() -> bool:
    """Whether timm can be imported; with a torchvision that does not fit it cannot."""
    try:
        import timm  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


def detector(
    config: str,
    proposals: int,
    baseline: bool = False,
    precision: str = 'float32',
    fast: bool = True,
) -> nn.Module:
    """Build a Mask R-CNN as ``init_model`` does.

    Args:
        config: Name of its config.
        proposals: Boxes for the box head; the best 100 of them go on to the mask head.
        baseline: Whether its backbone is the baseline implementation.
        precision: Precision that it runs in.
        fast: Whether neck and heads run in their faster form.
    """
    from mmdet.registry import MODELS

    model_config = Config.fromfile(CONFIGS / 'detection' / config).model
    model_config.test_cfg.rpn.max_per_img = proposals
    model_config.test_cfg.rcnn.max_per_img = min(proposals, 100)
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(model_config)
    randomize(model.backbone)
    # As clear-cut as those of a trained model: with scores below the threshold of 0.05 the mask
    # head would have no work, with a threshold of 0 there would be 80 candidates for each box.
    nn.init.normal_(model.roi_head.bbox_head.fc_cls.weight, std=CLASS_WEIGHT_STD)
    if baseline:
        use_baseline(model.backbone)
    set_precision(model, precision)
    if fast:
        accelerate(model, precision)
    return model


def segmentor(config: str, **test_cfg) -> nn.Module:
    """Build a segmentor as ``init_model`` does, which pads images to multiples of 32.

    Args:
        config: Name of its config.
        **test_cfg: How it sees an image, such as ``mode='slide'``.
    """
    from mmseg.registry import MODELS

    model_config = Config.fromfile(CONFIGS / 'segmentation' / config).model
    model_config.data_preprocessor.test_cfg = dict(size_divisor=32)
    model_config.backbone.init_cfg = None
    model_config.test_cfg.update(test_cfg)
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = MODELS.build(model_config)
    randomize(model.backbone)
    model = revert_sync_batchnorm(model)
    accelerate(model)
    return model


def randomize(model: nn.Module) -> nn.Module:
    """Give linears weights of the size of trained ones.

    The initial weights of a backbone are so small that attention has little effect on its
    outputs, and a comparison of outputs would prove little.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity='linear')
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
    return model


def random_image(batch: int, height: int, width: int) -> tuple[Tensor]:
    """Make the input of a backbone."""
    return (torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0)),)


def random_pixels(height: int, width: int) -> tuple[np.ndarray]:
    """Make an image as OpenCV reads it."""
    generator = np.random.default_rng(0)
    return (generator.integers(0, 256, (height, width, 3), dtype=np.uint8),)


class RandomPixels:
    """Image as OpenCV reads it whose rows are drawn when they are asked for by slices.

    An image of 16384 px takes 0.8 GB, which a program that reads a file in parts does not need.

    Args:
        height: Height.
        width: Width.
    """

    BAND_ROWS = 64

    def __init__(self, height: int, width: int) -> None:
        self.shape = (height, width, 3)

    def __getitem__(self, rows: slice) -> np.ndarray:
        top, bottom, _ = rows.indices(self.shape[0])
        pixels_HWC = np.empty((bottom - top, *self.shape[1:]), np.uint8)
        for index in range(top // self.BAND_ROWS, -(-bottom // self.BAND_ROWS)):
            band_HWC = np.random.default_rng(index).integers(
                0, 256, (self.BAND_ROWS, *self.shape[1:]), dtype=np.uint8
            )
            start = index * self.BAND_ROWS
            begin, end = max(start, top), min(start + self.BAND_ROWS, bottom)
            pixels_HWC[begin - top : end - top] = band_HWC[begin - start : end - start]
        return pixels_HWC


def random_file(height: int, width: int) -> tuple[RandomPixels]:
    """Make an image that is read in parts, as one from a file is."""
    return (RandomPixels(height, width),)


def random_padded_images(batch: int, height: int, width: int, lowest: float = 0.6) -> tuple[Tensor]:
    """Make a batch of images of different size, the largest of the given one, padded with zeros.

    Args:
        batch: Number of images.
        height: Height of the largest.
        width: Its width.
        lowest: Scale of the smallest; that of multi-scale training, from 480 to 800 px, is 0.6.
    """
    (images,) = random_image(batch, height, width)
    padded = F.pad(images, (0, -width % 32, 0, -height % 32))
    for image, scale in zip(padded, torch.linspace(lowest, 1, batch).tolist(), strict=True):
        image[:, round(scale * height) :] = 0
        image[:, :, round(scale * width) :] = 0
    return (padded,)


def random_tokens(
    batch: int, embed_dims: int, stride: int, height: int, width: int
) -> tuple[Tensor, tuple[int, int]]:
    """Make the input of a layer for an image of the given size."""
    hw_shape = (-(-height // stride), -(-width // stride))
    generator = torch.Generator().manual_seed(0)
    shape = (batch, hw_shape[0] * hw_shape[1], embed_dims)
    return torch.randn(shape, generator=generator), hw_shape
