"""InLine-Swin: Swin whose leading blocks attend over the whole map by InLine attention."""

from collections.abc import Iterable, Sequence

from mmengine.registry import MODELS as MMENGINE_MODELS
from torch import Tensor, nn

from ...layers import PatchEmbed, PatchMerging, SoftmaxAttention
from ...registry import MODELS
from .archs import SWIN_ARCHS, resolve_arch
from .attention import attention_builder
from .pyramid_backbone import PyramidBackbone


@MMENGINE_MODELS.register_module()
@MODELS.register_module()
class InLineSwin(PyramidBackbone):
    """InLine-Swin of arXiv:2412.06590 for dense prediction.

    Each output has a LayerNorm of its own, ``norm0`` to ``norm3``.

    Args:
        arch: 'tiny', 'small', 'base', or a dict with ``embed_dims``, ``depths``,
            ``num_heads``, ``mlp_ratios`` and ``inline_depths``, one entry per stage.
        in_channels: Channels of the image.
        out_indices: Stages whose maps are returned, ascending.
        frozen_stages: -1 trains all; 0 freezes the first embedding; n freezes it and the
            first n stages.
        drop_rate: Dropout after the first embedding, output projections and MLPs.
        drop_path_rate: Drop path of the last block; it rises linearly from 0.
        with_cp: Whether to save memory in training by computing blocks twice.
        attention: 'inline', or the config of another registered layer for the blocks that are
            InLine, such as ``dict(type='SoftmaxAttention', window_size=None)``; the next four
            belong to 'inline'.
        feature_map: Map of queries and keys: 'identity', 'relu', 'leaky_relu' or 'exp'.
        injective: False for plain linear attention, which needs 'relu' or 'exp'.
        local_residual: False to leave out the 3x3 step.
        inline_window: Side of the windows of InLine blocks; None for the whole map. Shifted
            by half in odd blocks.
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
        inline_window: int | None = None,
        streaming: bool | None = None,
        ignore_padding: bool = True,
        pad_value: float = 0.0,
        init_cfg: dict | list | None = None,
    ) -> None:
        sizes = resolve_arch(arch, SWIN_ARCHS)
        if inline_window is not None and (not isinstance(inline_window, int) or inline_window < 1):
            raise ValueError(
                f'inline_window has to be None or a whole number from 1 on, got {inline_window=}'
            )
        channels = (in_channels, *sizes['embed_dims'])
        build_attention = attention_builder(
            attention,
            feature_map=feature_map,
            injective=injective,
            local_residual=local_residual,
            window_size=inline_window,
        )

        def make_input(stage: int) -> dict:
            if stage:
                return dict(embed=PatchMerging(channels[stage], channels[stage + 1]))
            return dict(embed=PatchEmbed(in_channels, channels[1], 4), drop_rate=drop_rate)

        def make_attention(stage: int, block: int) -> nn.Module:
            is_inline = block < sizes['inline_depths'][stage]
            build = build_attention if is_inline else SoftmaxAttention
            dims, heads = sizes['embed_dims'][stage], sizes['num_heads'][stage]
            return build(dims, heads, drop_rate=drop_rate, shifted=block % 2 == 1)

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
            norm_eps=1e-5,
            streaming=streaming,
            ignore_padding=ignore_padding,
            pad_value=pad_value,
            init_cfg=init_cfg,
        )

    def _add_output_parts(self) -> None:
        for index, channels in zip(self.out_indices, self.out_channels, strict=True):
            self.add_module(f'norm{index}', nn.LayerNorm(channels))

    def output_norm(self, x_BLC: Tensor, index: int) -> Tensor:
        return getattr(self, f'norm{index}')(x_BLC)

    def _frozen_parts(self) -> Iterable[nn.Module]:
        yield from super()._frozen_parts()
        for index in self.out_indices:
            if index < self.frozen_stages:
                yield getattr(self, f'norm{index}')
