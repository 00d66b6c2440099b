"""InLine-PVT: the pyramid vision transformer with InLine attention in every block."""

from collections.abc import Sequence

import torch
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.utils import to_2tuple
from torch import nn

from ...layers import Block, InLineAttention, PatchEmbed
from ...registry import MODELS
from .archs import PVT_ARCHS, resolve_arch
from .pyramid import PyramidBackbone, Stage, drop_path_rates


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
        feature_map: Map of queries and keys: 'identity', 'relu', 'leaky_relu' or 'exp'.
        injective: False for plain linear attention, which needs 'relu' or 'exp'.
        local_residual: False to leave out the 3x3 step.
        pretrain_size: Image side, or height and width, for which the position embeddings have
            one entry a cell.
        streaming: Whether blocks run in bands of rows in inference, which bounds memory and
            changes nothing else: None for on a CPU, True for on any device, False for never.
            Softmax blocks can, and InLine blocks with the identity map over the whole map.
        init_cfg: As everywhere in OpenMMLab, see ``PyramidBackbone``.
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
        feature_map: str = 'identity',
        injective: bool = True,
        local_residual: bool = True,
        pretrain_size: int | tuple[int, int] = 224,
        streaming: bool | None = None,
        init_cfg: dict | list | None = None,
    ) -> None:
        sizes = resolve_arch(arch, PVT_ARCHS)
        pretrain_shape = to_2tuple(pretrain_size)
        if len(pretrain_shape) != 2 or min(pretrain_shape) < 1:
            raise ValueError(f'pretrain_size has to be at least 1, got {pretrain_size=}')
        rates = drop_path_rates(sizes['depths'], drop_path_rate)

        def make_block(dims: int, heads: int, mlp_ratio: float) -> Block:
            attention = InLineAttention(
                dims,
                heads,
                feature_map=feature_map,
                injective=injective,
                local_residual=local_residual,
                drop_rate=drop_rate,
            )
            return Block(
                attention,
                dims,
                mlp_ratio,
                norm_eps=1e-6,
                drop_rate=drop_rate,
                drop_path_rate=next(rates),
                with_cp=with_cp,
            )

        stages = []
        for index, (dims, depth, heads, mlp_ratio) in enumerate(
            zip(
                sizes['embed_dims'],
                sizes['depths'],
                sizes['num_heads'],
                sizes['mlp_ratios'],
                strict=True,
            )
        ):
            embed = PatchEmbed(
                in_channels if index == 0 else sizes['embed_dims'][index - 1],
                dims,
                patch_size=4 if index == 0 else 2,
            )
            grid = [-(-side // (4 * 2**index)) for side in pretrain_shape]
            position = nn.init.trunc_normal_(torch.empty(1, *grid, dims), std=0.02)
            blocks = [make_block(dims, heads, mlp_ratio) for _ in range(depth)]
            stages.append(Stage(embed, blocks, position, drop_rate, streaming))
        super().__init__(
            stages, sizes['embed_dims'], in_channels, out_indices, frozen_stages, init_cfg
        )
