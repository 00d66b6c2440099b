"""Models that are measured: ours, and what one would use instead."""

from collections import OrderedDict
from pathlib import Path

import torch
from attentions import FullSoftmaxAttention, UsualAttention
from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import nn

from mminline.layers import Block, InLineAttention
from mminline.models import InLinePVT, InLineSwin

CONFIGS = Path(__file__).resolve().parents[1] / 'configs' / 'detection'


def inline_layer(
    embed_dims: int, num_heads: int, folded: bool | None = None, **options
) -> InLineAttention:
    """A layer with random weights, always the same ones."""
    torch.manual_seed(0)
    layer = randomize(InLineAttention(embed_dims, num_heads, **options))
    layer.folded = folded
    return layer


def usual_layer(embed_dims: int, num_heads: int) -> UsualAttention:
    """The same layer in the usual form."""
    return UsualAttention(inline_layer(embed_dims, num_heads))


def softmax_layer(embed_dims: int, num_heads: int, fused: bool) -> FullSoftmaxAttention:
    """Softmax attention with the linears of that layer."""
    return FullSoftmaxAttention(inline_layer(embed_dims, num_heads), fused)


def inline_backbone(family: type[InLinePVT | InLineSwin], **options) -> nn.Module:
    """A backbone of size tiny with random weights, always the same ones."""
    torch.manual_seed(0)
    return randomize(family(**options))


def usual_backbone(family: type[InLinePVT | InLineSwin], **options) -> nn.Module:
    """The same backbone with the same weights in the usual form."""
    return use_usual_form(inline_backbone(family, streaming=False, **options))


def usual_mlp_backbone(family: type[InLinePVT | InLineSwin], **options) -> nn.Module:
    """The same backbone with our attention and the MLPs of the usual form."""
    return use_usual_mlps(inline_backbone(family, streaming=False, **options))


def softmax_pvt() -> nn.Module:
    """mmdet's PVT of size tiny."""
    from mmdet.models import PyramidVisionTransformer

    return PyramidVisionTransformer(num_layers=[2, 2, 2, 2])


def softmax_swin() -> nn.Module:
    """mmdet's Swin of size tiny, its default."""
    from mmdet.models import SwinTransformer

    return SwinTransformer()


def timm_swin(shape: tuple[int, int]) -> nn.Module:
    """timm's Swin of size tiny, with a map of each stage as its output."""
    import timm

    return timm.create_model(
        'swin_tiny_patch4_window7_224', features_only=True, img_size=shape, strict_img_size=False
    )


def timm_works() -> bool:
    """Whether timm can be imported; with a torchvision that does not fit it cannot."""
    try:
        import timm  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


def detector(config: str, proposals: int, usual: bool = False) -> nn.Module:
    """A Mask R-CNN with random weights.

    Args:
        config: Name of its config.
        proposals: Boxes for the box head; the best 100 of them go on to the mask head.
        usual: Whether its backbone takes the usual form.
    """
    from mmdet.registry import MODELS

    model_config = Config.fromfile(CONFIGS / config).model
    model_config.test_cfg.rpn.max_per_img = proposals
    # Scores that were not trained are low: with a threshold the mask head would have no work.
    model_config.test_cfg.rcnn.update(score_thr=0.0, max_per_img=min(proposals, 100))
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(model_config)
    randomize(model.backbone)
    if usual:
        use_usual_form(model.backbone)
    return model


def randomize(model: nn.Module) -> nn.Module:
    """Give linears weights of the size of trained ones.

    The initial ones of a backbone are so small that attention hardly shows in its outputs, and
    that two of them agree would say little.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity='linear')
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
    return model


def use_usual_form(backbone: nn.Module) -> nn.Module:
    """Put the usual form into every InLine block, and the usual MLP into every block."""
    for module in backbone.modules():
        if isinstance(module, Block) and isinstance(module.attn, InLineAttention):
            module.attn = UsualAttention(module.attn)
    return use_usual_mlps(backbone)


def use_usual_mlps(backbone: nn.Module) -> nn.Module:
    """Make every MLP the chain of its layers that one would write down."""
    for module in backbone.modules():
        if isinstance(module, Block):
            layers = ((name, getattr(module.mlp, name)) for name in ('fc1', 'act', 'fc2', 'drop'))
            module.mlp = nn.Sequential(OrderedDict(layers))
    return backbone
