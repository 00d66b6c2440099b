"""Sizes of the published models (arXiv:2412.06590), and the check of a user's own."""

from collections.abc import Mapping

from mmengine.utils import to_2tuple

PVT_WIDTHS = dict(embed_dims=(64, 128, 320, 512), num_heads=(2, 4, 10, 16), mlp_ratios=(8, 8, 4, 4))
PVT_ARCHS = {
    'tiny': dict(**PVT_WIDTHS, depths=(2, 2, 2, 2)),
    'small': dict(**PVT_WIDTHS, depths=(3, 4, 6, 3)),
    'medium': dict(**PVT_WIDTHS, depths=(3, 4, 18, 3)),
    'large': dict(**PVT_WIDTHS, depths=(3, 8, 27, 3)),
}

SWIN_WIDTHS = dict(
    embed_dims=(96, 192, 384, 768), num_heads=(3, 6, 12, 24), mlp_ratios=(4, 4, 4, 4)
)
# ``inline_depths``: how many leading blocks of each stage are InLine, the others softmax.
SWIN_ARCHS = {
    'tiny': dict(**SWIN_WIDTHS, depths=(2, 2, 6, 2), inline_depths=(2, 2, 6, 0)),
    'small': dict(**SWIN_WIDTHS, depths=(2, 2, 18, 2), inline_depths=(2, 2, 0, 0)),
    'base': dict(
        embed_dims=(128, 256, 512, 1024),
        num_heads=(4, 8, 16, 32),
        mlp_ratios=(4, 4, 4, 4),
        depths=(2, 2, 18, 2),
        inline_depths=(2, 2, 2, 0),
    ),
}

# A plain transformer has one stage.
DEIT_ARCHS = {
    'tiny': dict(embed_dims=(192,), num_heads=(6,), mlp_ratios=(4,), depths=(12,)),
    'small': dict(embed_dims=(320,), num_heads=(10,), mlp_ratios=(4,), depths=(12,)),
    'base': dict(embed_dims=(384,), num_heads=(12,), mlp_ratios=(4,), depths=(12,)),
}
# Sides of the images of pre-training; those of all other models are of 224 px.
DEIT_SIDES = dict(tiny=224, small=288, base=448)


def resolve_arch(arch: str | Mapping, archs: Mapping[str, dict]) -> dict[str, tuple]:
    """Look up a named size, or check one given as a dict with one entry per stage."""
    if isinstance(arch, str):
        if arch not in archs:
            raise ValueError(f'arch has to be one of {list(archs)} or a dict, got {arch=}')
        return archs[arch]
    if not isinstance(arch, Mapping):
        raise TypeError(f'arch has to be one of {list(archs)} or a dict, got {arch=}')
    wanted = sorted(next(iter(archs.values())))
    if sorted(arch) != wanted:
        raise ValueError(f'an arch dict has to have the keys {wanted}, got {sorted(arch)}')
    for key in wanted:
        if not isinstance(arch[key], (list, tuple)):
            raise TypeError(f'{key} of an arch has to be a list or tuple, got {key}={arch[key]!r}')
    sizes = {key: tuple(arch[key]) for key in wanted}
    lengths = {key: len(values) for key, values in sizes.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ValueError(f'an arch dict has to have one entry per stage in each key, got {lengths}')
    for key, values in sizes.items():
        least = 0 if key == 'inline_depths' else 1
        if any(value < least for value in values):
            raise ValueError(f'{key} of an arch has to be at least {least}, got {key}={values}')
    pairs = zip(sizes.get('inline_depths', ()), sizes['depths'], strict=False)
    if any(inline > depth for inline, depth in pairs):
        raise ValueError(
            f'inline_depths has to be at most depths in every stage, got '
            f'inline_depths={sizes["inline_depths"]} and depths={sizes["depths"]}'
        )
    return sizes


def check_pretrain_size(pretrain_size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width of the images of pre-training."""
    height_width = to_2tuple(pretrain_size)
    if len(height_width) != 2 or min(height_width) < 1:
        raise ValueError(f'pretrain_size has to be at least 1, got {pretrain_size=}')
    return height_width
