"""InLine-DeiT: the plain vision transformer with InLine attention in every block."""

from collections.abc import Mapping, Sequence

import torch
from mmengine.registry import MODELS as MMENGINE_MODELS
from torch import Tensor, nn

from ... import execution
from ...execution.slabs import SlabShape
from ...layers import PatchEmbed
from ...registry import MODELS
from .archs import DEIT_ARCHS, DEIT_SIDES, check_pretrain_size, resolve_arch
from .attention import attention_builder
from .stage import to_map
from .template import Backbone

PATCH = 16


@MMENGINE_MODELS.register_module()
@MODELS.register_module()
class InLineDeiT(Backbone):
    """InLine-DeiT of arXiv:2412.06590 for dense prediction.

    All blocks work at stride 16. A class token stands in front of the grid: it takes part in the
    attention, but in no output. Outputs have no norm.

    Args:
        arch: 'tiny', 'small', 'base', or a dict with ``embed_dims``, ``depths``, ``num_heads``
            and ``mlp_ratios``, each of one entry.
        in_channels: Channels of the image.
        out_indices: Blocks whose maps are returned, ascending.
        frozen_stages: -1 trains all; 0 freezes the embedding; n freezes it and the first n
            blocks.
        drop_rate: Dropout after position embedding, output projections and MLPs.
        drop_path_rate: Drop path of the last block; it rises linearly from 0.
        with_cp: Whether to save memory in training by computing blocks twice.
        attention: 'inline', or the config of another registered layer, such as
            ``dict(type='SoftmaxAttention', window_size=None)``; the next three belong to 'inline'.
        feature_map: Map of queries and keys: 'identity', 'relu', 'leaky_relu' or 'exp'.
        injective: False for plain linear attention, which needs 'relu' or 'exp'.
        local_residual: False to leave out the 3x3 step.
        pretrain_size: Image side, or height and width, for which the position embedding has one
            entry a cell. None for that of the published model; 224 for an ``arch`` of your own.
        streaming: Whether blocks run in bands of rows in inference, which bounds memory and
            changes nothing else: None for on a CPU, True for on any device, False for never.
            InLine blocks with the identity map can.
        ignore_padding: Whether the maps of an image are those of the image alone, and zero where
            its batch is padded. Padding are the last rows and columns that are ``pad_value``.
            False to compute padding like pixels.
        pad_value: Value of padding, after normalisation.
        init_cfg: As everywhere in OpenMMLab, see ``Backbone``.
    """

    unit_name = 'blocks'
    smallest_side = 32

    def __init__(
        self,
        arch: str | dict = 'tiny',
        in_channels: int = 3,
        out_indices: Sequence[int] = (2, 5, 8, 11),
        frozen_stages: int = -1,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        attention: str | dict = 'inline',
        feature_map: str = 'identity',
        injective: bool = True,
        local_residual: bool = True,
        pretrain_size: int | tuple[int, int] | None = None,
        streaming: bool | None = None,
        ignore_padding: bool = True,
        pad_value: float = 0.0,
        init_cfg: dict | list | None = None,
    ) -> None:
        sizes = resolve_arch(arch, DEIT_ARCHS)
        if len(sizes['depths']) != 1:
            raise ValueError(f'an arch of InLineDeiT has to have one stage, got {arch=}')
        if pretrain_size is None:
            pretrain_size = DEIT_SIDES[arch] if isinstance(arch, str) else 224
        pretrain_shape = check_pretrain_size(pretrain_size)
        (channels,), (num_heads,) = sizes['embed_dims'], sizes['num_heads']
        build_attention = attention_builder(
            attention, feature_map=feature_map, injective=injective, local_residual=local_residual
        )

        def make_input(stage: int) -> dict:
            grid = [-(-side // PATCH) for side in pretrain_shape]
            position, token, token_position = (
                nn.init.trunc_normal_(torch.empty(1, *shape, channels), std=0.02)
                for shape in (grid, (1,), (1,))
            )
            return dict(
                embed=PatchEmbed(in_channels, channels, PATCH, norm=False),
                position=position,
                class_token=(token, token_position),
                drop_rate=drop_rate,
            )

        def make_attention(stage: int, block: int) -> nn.Module:
            return build_attention(channels, num_heads, drop_rate, num_extra_tokens=1)

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

    @property
    def units(self) -> nn.ModuleList:
        return self.stages[0].blocks

    def _describe_units(self, sizes: Mapping[str, Sequence]) -> Sequence[tuple[int, int]]:
        return [(sizes['embed_dims'][0], PATCH)] * sizes['depths'][0]

    def _run_stages(self, image_BCHW: Tensor, slab: SlabShape | None = None) -> tuple[Tensor, ...]:
        if slab is not None:
            raise ValueError(
                'InLineDeiT runs on whole images, outside of spatial_parallel: its class token '
                'belongs to no slab'
            )
        (stage,) = self.stages
        x_BLC, hw_shape = stage.embed_tokens(image_BCHW)
        outputs = []
        for index, block in enumerate(stage.blocks[: self.out_indices[-1] + 1]):
            x_BLC = execution.run(block, x_BLC, hw_shape, stage.streaming)
            if index in self.out_indices:
                out_BCHW = to_map(x_BLC[:, 1:], hw_shape)
                outputs.append(execution.to_order(out_BCHW, self.memory_format))
        return tuple(outputs)
