"""Entry points of ``timm.create_model``: the ten published models and their weights' links."""

from collections.abc import Callable
from dataclasses import replace

from timm.layers import to_2tuple
from timm.models import (
    build_model_with_cfg,
    generate_default_cfgs,
    register_model,
    resolve_pretrained_cfg,
)
from torch import nn

from ..checkpoints.download import PUBLISHED, download
from ..models import InLineDeiT, InLinePVT, InLineSwin
from ..models.backbones.archs import DEIT_ARCHS, DEIT_SIDES, resolve_arch
from .classifier import InLineClassifier
from .token_classifier import InLineTokenClassifier
from .weights import checkpoint_filter_fn

# timm's defaults for size, crop, mean and standard deviation are the ones these models want,
# but for the size of two.
SIZES = {f'deit-{arch}': dict(input_size=(3, side, side)) for arch, side in DEIT_SIDES.items()}
default_cfgs = generate_default_cfgs(
    {
        f'inline_{name.replace("-", "_")}.in1k': dict(
            url=model.url,
            custom_load=True,
            first_conv='stages.0.embed.proj',
            classifier='head.fc',
            paper_name='Bridging the Divide: Reconsidering Softmax and Linear Attention',
            paper_ids='arXiv:2412.06590',
            **SIZES.get(name, dict(pool_size=(7, 7))),
        )
        for name, model in PUBLISHED.items()
    }
)


# Options of a backbone that a classifier has too, by timm's word for each.
BACKBONE_OPTIONS = dict(
    arch='arch',
    in_chans='in_channels',
    proj_drop_rate='drop_rate',
    drop_path_rate='drop_path_rate',
    feature_map='feature_map',
    injective='injective',
    local_residual='local_residual',
    streaming='streaming',
)
PVT_OPTIONS = DEIT_OPTIONS = dict(BACKBONE_OPTIONS, img_size='pretrain_size')
SWIN_OPTIONS = dict(BACKBONE_OPTIONS, inline_window='inline_window')


def make_pvt(**options) -> InLineClassifier:
    """Make InLine-PVT from options in timm's words; those of the head as in the classifier."""
    of_backbone, of_head = split_options(options, PVT_OPTIONS)
    return InLineClassifier(InLinePVT(**of_backbone), nn.Identity(), **of_head)


def make_swin(img_size: int | tuple[int, int] | None = None, **options) -> InLineClassifier:
    """Make InLine-Swin likewise; none of its weights depends on ``img_size``."""
    of_backbone, of_head = split_options(options, SWIN_OPTIONS)
    backbone = InLineSwin(**of_backbone)
    return InLineClassifier(backbone, nn.LayerNorm(backbone.out_channels[-1]), **of_head)


def make_deit(arch: str | dict, **options) -> InLineTokenClassifier:
    """Make InLine-DeiT likewise."""
    of_backbone, of_head = split_options(options, DEIT_OPTIONS)
    (depth,) = resolve_arch(arch, DEIT_ARCHS)['depths']
    backbone = InLineDeiT(arch, out_indices=range(depth), **of_backbone)
    norm = nn.LayerNorm(backbone.out_channels[-1], eps=1e-6)
    return InLineTokenClassifier(backbone, norm, **of_head)


def split_options(options: dict, names: dict[str, str]) -> tuple[dict, dict]:
    """Split off the options of a backbone, under its own names, from those of the classifier."""
    of_backbone = {names[name]: value for name, value in options.items() if name in names}
    return of_backbone, {name: value for name, value in options.items() if name not in names}


def _create(
    make: Callable[..., InLineClassifier],
    variant: str,
    pretrained: bool,
    pretrained_cfg=None,
    pretrained_cfg_overlay: dict | None = None,
    **options,
) -> nn.Module:
    """Build a classifier, or with ``features_only=True`` the extractor of its maps."""
    cfg = resolve_pretrained_cfg(variant, pretrained_cfg, pretrained_cfg_overlay)
    if 'img_size' in options:
        # So that the data loaders that timm makes for the model have this size too.
        cfg = replace(cfg, input_size=(cfg.input_size[0], *to_2tuple(options['img_size'])))
    if pretrained and cfg.url and not (cfg.source or cfg.state_dict or cfg.file or cfg.hf_hub_id):
        # timm names a download by the end of its link; the published ones end in no name.
        file = download(cfg.url, options.get('cache_dir'))
        cfg = replace(cfg, file=str(file), custom_load=True)
    return build_model_with_cfg(
        make,
        variant,
        pretrained,
        pretrained_cfg=cfg,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg=dict(out_indices=4, feature_cls='getter'),  # the last four
        **options,
    )


@register_model
def inline_pvt_tiny(pretrained: bool = False, **options) -> nn.Module:
    """InLine-PVT-T: 12.0 M parameters, 2.0 G multiply-adds."""
    return _create(make_pvt, 'inline_pvt_tiny', pretrained, **{'arch': 'tiny', **options})


@register_model
def inline_pvt_small(pretrained: bool = False, **options) -> nn.Module:
    """InLine-PVT-S: 21.6 M parameters, 3.9 G multiply-adds."""
    return _create(make_pvt, 'inline_pvt_small', pretrained, **{'arch': 'small', **options})


@register_model
def inline_pvt_medium(pretrained: bool = False, **options) -> nn.Module:
    """InLine-PVT-M: 37.6 M parameters, 6.9 G multiply-adds."""
    return _create(make_pvt, 'inline_pvt_medium', pretrained, **{'arch': 'medium', **options})


@register_model
def inline_pvt_large(pretrained: bool = False, **options) -> nn.Module:
    """InLine-PVT-L: 51.2 M parameters, 10.2 G multiply-adds."""
    return _create(make_pvt, 'inline_pvt_large', pretrained, **{'arch': 'large', **options})


@register_model
def inline_swin_tiny(pretrained: bool = False, **options) -> nn.Module:
    """InLine-Swin-T: 29.2 M parameters, 4.5 G multiply-adds."""
    return _create(make_swin, 'inline_swin_tiny', pretrained, **{'arch': 'tiny', **options})


@register_model
def inline_swin_small(pretrained: bool = False, **options) -> nn.Module:
    """InLine-Swin-S: 49.8 M parameters, 8.7 G multiply-adds."""
    return _create(make_swin, 'inline_swin_small', pretrained, **{'arch': 'small', **options})


@register_model
def inline_swin_base(pretrained: bool = False, **options) -> nn.Module:
    """InLine-Swin-B: 88.4 M parameters, 15.4 G multiply-adds."""
    return _create(make_swin, 'inline_swin_base', pretrained, **{'arch': 'base', **options})


@register_model
def inline_deit_tiny(pretrained: bool = False, **options) -> nn.Module:
    """InLine-DeiT-T: 6.5 M parameters, 1.1 G multiply-adds."""
    return _create(make_deit, 'inline_deit_tiny', pretrained, **{'arch': 'tiny', **options})


@register_model
def inline_deit_small(pretrained: bool = False, **options) -> nn.Module:
    """InLine-DeiT-S, for images of 288 px: 16.7 M parameters, 5.0 G multiply-adds."""
    return _create(make_deit, 'inline_deit_small', pretrained, **{'arch': 'small', **options})


@register_model
def inline_deit_base(pretrained: bool = False, **options) -> nn.Module:
    """InLine-DeiT-B, for images of 448 px: 23.8 M parameters, 17.2 G multiply-adds."""
    return _create(make_deit, 'inline_deit_base', pretrained, **{'arch': 'base', **options})
