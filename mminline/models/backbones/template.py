"""Template of the backbones: the contract with necks and heads, freezing, loading."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from mmengine.model import BaseModule, PretrainedInit
from torch import Tensor, nn

from ... import execution
from ...checkpoints import load_pretrained
from ...execution.slabs import SlabShape, find_slab
from ...layers import Block
from .padding import check_pad_value, find_sizes, run_size_by_size
from .slabs import find_whole_sizes, run_slab
from .stage import Stage

_PRETRAINED = ('Pretrained', 'PretrainedInit', PretrainedInit)


def drop_path_rates(depths: Sequence[int], last_rate: float) -> Iterable[float]:
    """Drop path of each block, rising linearly from 0 to ``last_rate`` over all stages."""
    if not 0 <= last_rate < 1:
        raise ValueError(f'drop_path_rate has to be in [0, 1), got drop_path_rate={last_rate}')
    last = max(sum(depths) - 1, 1)
    return iter([last_rate * index / last for index in range(sum(depths))])


class Backbone(BaseModule):
    """Image to a tuple of maps: what necks and heads expect.

    A map has ``ceil(side / stride)`` cells a side. ``out_channels`` and ``strides`` describe
    the outputs, one entry for each. The maps of an image do not depend on the padding that makes
    its batch rectangular, and are zero there, unless ``ignore_padding`` is False.

    ``out_indices`` and ``frozen_stages`` count units: the stages of a pyramid, or the blocks of a
    plain transformer. A subclass names, describes and runs them.

    Args:
        sizes: ``embed_dims``, ``depths``, ``num_heads`` and ``mlp_ratios``, one entry per stage.
        make_input: From the number of a stage to the arguments ``embed``, ``position`` and
            ``drop_rate`` of ``Stage``.
        make_attention: From the numbers of a stage and of a block in it to an attention layer.
        in_channels: Channels of the image.
        out_indices: Units whose maps are returned, ascending.
        frozen_stages: -1 trains all; 0 freezes the first embedding; n freezes it and the
            first n units.
        drop_rate: Dropout after MLPs.
        drop_path_rate: Drop path of the last block; it rises linearly from 0.
        with_cp: Whether to save memory in training by computing blocks twice.
        norm_eps: Epsilon of the norms of the blocks.
        streaming: Whether blocks run in bands of rows in inference, see ``execution.run``.
        ignore_padding: Whether each image runs at its own size, without the rows at the bottom
            and the columns at the right that are padding.
        pad_value: Value of padding, after normalisation.
        init_cfg: As everywhere in OpenMMLab. ``dict(type='Pretrained', checkpoint=...)`` takes
            a published file as it is, one of this project, or with ``prefix`` a detector's.
    """

    unit_name: str  # plural, for messages
    smallest_side: int  # of an image, in pixels
    # Order of the maps in memory. Tokens are channels-last already, but compiled ops of mmcv read
    # memory without a look at the strides: ``apis.accelerate`` sets it where none follows.
    channels_last = False

    def __init__(
        self,
        sizes: Mapping[str, Sequence],
        make_input: Callable[[int], dict],
        make_attention: Callable[[int, int], nn.Module],
        in_channels: int,
        out_indices: Sequence[int],
        frozen_stages: int,
        drop_rate: float,
        drop_path_rate: float,
        with_cp: bool,
        norm_eps: float,
        streaming: bool | None,
        ignore_padding: bool,
        pad_value: float,
        init_cfg: dict | list | None,
    ) -> None:
        super().__init__(init_cfg)
        check_pad_value(pad_value)
        rates = drop_path_rates(sizes['depths'], drop_path_rate)
        stages = []
        for index, depth in enumerate(sizes['depths']):
            stage_input = make_input(index)
            blocks = [
                Block(
                    make_attention(index, block),
                    sizes['embed_dims'][index],
                    sizes['mlp_ratios'][index],
                    norm_eps,
                    drop_rate,
                    next(rates),
                    with_cp,
                )
                for block in range(depth)
            ]
            stages.append(Stage(blocks=blocks, streaming=streaming, **stage_input))
        self.stages = nn.ModuleList(stages)
        self.out_indices = self._check_out_indices(out_indices)
        if frozen_stages not in range(-1, len(self.units) + 1):
            raise ValueError(
                f'frozen_stages has to be from -1 to {len(self.units)}, got {frozen_stages=}'
            )
        self.in_channels = in_channels
        self.frozen_stages = frozen_stages
        self.ignore_padding = ignore_padding
        self.pad_value = pad_value
        units = self._describe_units(sizes)
        self.out_channels, self.strides = zip(
            *(units[index] for index in self.out_indices), strict=True
        )
        self._add_output_parts()
        self.apply(reset_linear)
        self._freeze()

    def forward(self, image_BCHW: Tensor) -> tuple[Tensor, ...]:
        slab = find_slab(image_BCHW, self.smallest_side)
        check_image(image_BCHW, self.in_channels, self.smallest_side, slab)
        execution.note_images(image_BCHW)
        if slab is not None:
            sizes = [slab.whole] * len(image_BCHW)
            if self.ignore_padding:
                sizes = find_whole_sizes(image_BCHW, slab, self.pad_value, self.smallest_side)
            return run_slab(self._run_stages, image_BCHW, slab, sizes, self.strides)
        if self.ignore_padding and execution.can_read(image_BCHW):
            sizes = find_sizes(image_BCHW, self.pad_value, self.smallest_side)
            if sizes is not None:
                return self._run_at_own_sizes(image_BCHW, sizes)
        return self._run_stages(image_BCHW)

    @property
    def memory_format(self) -> torch.memory_format:
        """Order of the maps in memory."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    @property
    def units(self) -> nn.ModuleList:
        """Parts that outputs are taken from, in the order in which they run."""
        raise NotImplementedError

    def _describe_units(self, sizes: Mapping[str, Sequence]) -> Sequence[tuple[int, int]]:
        """Channels and stride of each unit."""
        raise NotImplementedError

    def _run_stages(self, image_BCHW: Tensor, slab: SlabShape | None = None) -> tuple[Tensor, ...]:
        """Compute the maps of images of one size, or the own rows of them."""
        raise NotImplementedError

    def _check_out_indices(self, out_indices: Sequence[int]) -> tuple[int, ...]:
        if isinstance(out_indices, int):
            raise TypeError(
                f'out_indices has to be a list or tuple of {self.unit_name}, got {out_indices=}'
            )
        out_indices, count = tuple(out_indices), len(self.units)
        ascending = tuple(index for index in range(count) if index in out_indices)
        if not out_indices or out_indices != ascending:
            raise ValueError(
                f'out_indices has to be ascending {self.unit_name} from 0 to {count - 1}, '
                f'got {out_indices=}'
            )
        return out_indices

    def _run_at_own_sizes(
        self, image_BCHW: Tensor, sizes: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, ...]:
        """Compute the maps of images without their padding, zero where an image is not."""
        return run_size_by_size(self._run_stages, image_BCHW, sizes, self.strides)

    def _add_output_parts(self) -> None:
        """Give each output what it needs of its own; by default nothing."""

    def init_weights(self) -> None:
        """Load ``Pretrained`` weights completely or raise; leave other kinds to mmengine."""
        init_cfg = self.init_cfg
        configs = init_cfg if isinstance(init_cfg, list) else [init_cfg] if init_cfg else []
        pretrained = [cfg for cfg in configs if cfg['type'] in _PRETRAINED]
        if self.is_init:
            pretrained = []
        self.init_cfg = [cfg for cfg in configs if cfg['type'] not in _PRETRAINED]
        super().init_weights()
        self.init_cfg = init_cfg
        for cfg in pretrained:
            load_pretrained(self, **{key: value for key, value in cfg.items() if key != 'type'})

    def train(self, mode: bool = True) -> 'Backbone':
        super().train(mode)
        self._freeze()
        return self

    def _frozen_parts(self) -> Iterable[nn.Module]:
        if self.frozen_stages >= 0:
            yield from (self.stages[0].embed, self.stages[0].drop)
        yield from self.units[: max(self.frozen_stages, 0)]
        # Never run: distributed training must not wait for their gradients.
        yield from self.units[self.out_indices[-1] + 1 :]

    def _freeze(self) -> None:
        for part in self._frozen_parts():
            part.eval()
            part.requires_grad_(False)
        if self.frozen_stages >= 0:
            for parameter in self.stages[0].parameters(recurse=False):  # position, class token
                parameter.requires_grad_(False)

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Number a parameter's layer for layer-wise learning rate decay.

        The first embedding is layer 0, blocks count up from 1 through all stages, an embedding
        between stages goes with the block behind it; whatever is fresh in a downstream model
        (output norms, names outside ``prefix``) is the last layer.

        Returns:
            The layer of the parameter and the number of layers.
        """
        depths = [len(stage.blocks) for stage in self.stages]
        num_layers = sum(depths) + 2
        parts = param_name.removeprefix(prefix).split('.')
        if not param_name.startswith(prefix) or parts[0] != 'stages':
            return num_layers - 1, num_layers
        stage = int(parts[1])
        if parts[2] == 'blocks':
            return sum(depths[:stage]) + int(parts[3]) + 1, num_layers
        return (sum(depths[:stage]) + 1 if stage else 0), num_layers


def check_image(
    image_BCHW: Tensor, in_channels: int, smallest_side: int, slab: SlabShape | None = None
) -> None:
    """Say what an image batch has to be, should it be something else."""
    if image_BCHW.dim() != 4 or image_BCHW.shape[1] != in_channels:
        raise ValueError(
            f'an image batch has to have the shape (B, {in_channels}, H, W), '
            f'got {tuple(image_BCHW.shape)}'
        )
    sides = tuple(image_BCHW.shape[-2:]) if slab is None else slab.whole
    if min(sides) < smallest_side:
        raise ValueError(
            f'an image has to be at least {smallest_side} x {smallest_side} px for this backbone, '
            f'got {sides}: resize or pad it'
        )


def reset_linear(module: nn.Module) -> None:
    """Initialise a linear as published; other layers keep PyTorch's values."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
