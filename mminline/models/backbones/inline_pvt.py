"""InLine-PVT: the pyramid vision transformer with InLine attention in every block."""

from collections.abc import Sequence

import torch
from mmengine.registry import MODELS as MMENGINE_MODELS
from torch import nn

from ...layers import PatchEmbed
from ...registry import MODELS
from .archs import PVT_ARCHS, check_pretrain_size, resolve_arch
from .attention import attention_builder
from .pyramid_backbone import PyramidBackbone


@MMENGINE_MODELS.register_module()
@MODELS.register_module()
class InLinePVT(PyramidBackbone):
    """InLine-PVT of arXiv:2412.06590 for dense prediction.

    Args:
        arch: 'tiny', 'small', 'medium', 'large', or a dict with ``embed_dims``, ``depths``,
            ``num_heads`` and ``mlp_ratios``, one entry per stage.
        in_channels: Channels of the image.
        out_indices: Stages whose maps are returned, ascending.
        frozen_stages: -1 trains all; 0 freezes the first embedding; n freezes it and the
            first n stages.
        drop_rate: Dropout after position embeddings, output projections and MLPs.
        drop_path_rate: Drop path of the last block; it rises linearly from 0.
        with_cp: Whether to save memory in training by computing blocks twice.
        attention: 'inline', or the config of another registered layer, such as
            ``dict(type='SoftmaxAttention', window_size=7)``; the next three belong to 'inline'.
        feature_map: Map of queries and keys: 'identity', 'relu', 'leaky_relu' or 'exp'.
        injective: False for plain linear attention, which needs 'relu' or 'exp'.
        local_residual: False to leave out the 3x3 step.
        pretrain_size: Image side, or height and width, for which the position embeddings have
            one entry a cell.
        streaming: Whether blocks run in bands of rows in inference, which bounds memory and
            changes nothing else: None for on a CPU, True for on any device, False for never.
            Softmax blocks can, and InLine blocks with the identity map over the whole map.
        ignore_padding: Whether the maps of an image are those of the image alone, and zero where
            its batch is padded. Padding are the last rows and columns that are ``pad_value``.
            False to compute padding like pixels.
        pad_value: Value of padding, after normalisation.
        init_cfg: As everywhere in OpenMMLab, see ``Backbone``.
    """

    def __init__(
        self,
        arch: str | dict = 'tiny',
        in_channels: int = 3,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        frozen_stages: int = -1,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        attention: str | dict = 'inline',
        feature_map: str = 'identity',
        injective: bool = True,
        local_residual: bool = True,
        pretrain_size: int | tuple[int, int] = 224,
        streaming: bool | None = None,
        ignore_padding: bool = True,
        pad_value: float = 0.0,
        init_cfg: dict | list | None = None,
    ) -> None:
        sizes = resolve_arch(arch, PVT_ARCHS)
        pretrain_shape = check_pretrain_size(pretrain_size)
        channels = (in_channels, *sizes['embed_dims'])
        build_attention = attention_builder(
            attention, feature_map=feature_map, injective=injective, local_residual=local_residual
        )

        def make_input(stage: int) -> dict:
            patch_size = 2 if stage else 4
            embed = PatchEmbed(channels[stage], channels[stage + 1], patch_size)
            grid = [-(-side // (4 * 2**stage)) for side in pretrain_shape]
            position = nn.init.trunc_normal_(torch.empty(1, *grid, channels[stage + 1]), std=0.02)
            return dict(embed=embed, position=position, drop_rate=drop_rate)

        def make_attention(stage: int, block: int) -> nn.Module:
            dims, heads = sizes['embed_dims'][stage], sizes['num_heads'][stage]
            return build_attention(dims, heads, drop_rate, shifted=block % 2 == 1)

        super().__init__(
            sizes,
            make_input,
            make_attention,
            in_channels,
            out_indices,
            frozen_stages,
            drop_rate,
            drop_path_rate,
            with_cp,
            norm_eps=1e-6,
            streaming=streaming,
            ignore_padding=ignore_padding,
            pad_value=pad_value,
            init_cfg=init_cfg,
        )
