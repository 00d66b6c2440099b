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

from mminline.layers import InLineAttention
from mminline.models import InLinePVT, InLineSwin

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'


def inline_backbone(
    family: type[InLinePVT | InLineSwin],
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


def has_timm() -> bool:
    """Whether timm can be imported; with a torchvision that does not fit it cannot."""
    try:
        import timm  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


def detector(config: str, proposals: int, baseline: bool = False) -> nn.Module:
    """Build a Mask R-CNN.

    Args:
        config: Name of its config.
        proposals: Boxes for the box head; the best 100 of them go on to the mask head.
        baseline: Whether its backbone is the baseline implementation.
    """
    from mmdet.registry import MODELS

    model_config = Config.fromfile(CONFIGS / 'detection' / config).model
    model_config.test_cfg.rpn.max_per_img = proposals
    # Untrained scores are low: with a threshold the mask head would have no work.
    model_config.test_cfg.rcnn.update(score_thr=0.0, max_per_img=min(proposals, 100))
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(model_config)
    randomize(model.backbone)
    if baseline:
        use_baseline(model.backbone)
    return model


def segmentor(config: str, **test_cfg) -> nn.Module:
    """Build a segmentor that pads images to multiples of 32.

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
    return revert_sync_batchnorm(model)


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


def random_padded_images(batch: int, height: int, width: int) -> tuple[Tensor]:
    """Make a batch of images of different size, the largest of the given one, padded with zeros.

    The sizes are those of multi-scale training, whose images have a shorter side of 480 to 800.
    """
    (images,) = random_image(batch, height, width)
    padded = F.pad(images, (0, -width % 32, 0, -height % 32))
    for image, scale in zip(padded, torch.linspace(0.6, 1, batch).tolist(), strict=True):
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
