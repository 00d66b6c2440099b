"""Template of the backbones: stages, the contract with necks and heads, freezing, loading."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from mmengine.model import BaseModule, PretrainedInit
from torch import Tensor, nn

from ... import execution
from ...checkpoints import load_pretrained
from ...layers import Block
from ...layers.as_built import find_change
from .padding import check_pad_value, find_sizes, run_at_own_sizes
from .stage import Stage, to_map

_PRETRAINED = ('Pretrained', 'PretrainedInit', PretrainedInit)


def drop_path_rates(depths: Sequence[int], last_rate: float) -> Iterable[float]:
    """Drop path of each block, rising linearly from 0 to ``last_rate`` over all stages."""
    if not 0 <= last_rate < 1:
        raise ValueError(f'drop_path_rate has to be in [0, 1), got drop_path_rate={last_rate}')
    last = max(sum(depths) - 1, 1)
    return iter([last_rate * index / last for index in range(sum(depths))])


class PyramidBackbone(BaseModule):
    """Image to a tuple of maps at strides 4, 8, 16, 32: what necks and heads expect.

    A map has ``ceil(side / stride)`` cells a side. ``out_channels`` and ``strides`` describe
    the outputs, one entry for each. The maps of an image do not depend on the padding that makes
    its batch rectangular, and are zero there, unless ``ignore_padding`` is False.

    Args:
        sizes: ``embed_dims``, ``depths``, ``num_heads`` and ``mlp_ratios``, one entry per stage.
            The first stage has stride 4, each other doubles it.
        make_input: From the number of a stage to the arguments ``embed``, ``position`` and
            ``drop_rate`` of ``Stage``.
        make_attention: From the numbers of a stage and of a block in it to an attention layer.
        in_channels: Channels of the image.
        out_indices: Stages whose maps are returned, ascending.
        frozen_stages: -1 trains all; 0 freezes the first embedding; n freezes it and the
            first n stages.
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
        if isinstance(out_indices, int):
            raise TypeError(f'out_indices has to be a list or tuple of stages, got {out_indices=}')
        out_indices = tuple(out_indices)
        if not out_indices or out_indices != tuple(
            index for index in range(len(stages)) if index in out_indices
        ):
            raise ValueError(
                f'out_indices has to be ascending stages from 0 to {len(stages) - 1}, '
                f'got {out_indices=}'
            )
        if frozen_stages not in range(-1, len(stages) + 1):
            raise ValueError(
                f'frozen_stages has to be from -1 to {len(stages)}, got {frozen_stages=}'
            )
        self.in_channels = in_channels
        self.out_indices = out_indices
        self.frozen_stages = frozen_stages
        self.ignore_padding = ignore_padding
        self.pad_value = pad_value
        self.stages = nn.ModuleList(stages)
        self.strides = tuple(4 * 2**index for index in out_indices)
        self.out_channels = tuple(sizes['embed_dims'][index] for index in out_indices)
        self._add_output_parts()
        self.apply(reset_linear)
        self._freeze()

    def forward(self, image_BCHW: Tensor) -> tuple[Tensor, ...]:
        check_image(image_BCHW, self.in_channels, len(self.stages))
        if self.ignore_padding and execution.can_read(image_BCHW):
            sizes = find_sizes(image_BCHW, self.pad_value, smallest_side(len(self.stages)))
            if sizes is not None:
                return run_at_own_sizes(self._run_batches, image_BCHW, sizes, self.strides)
        return self._run_stages(image_BCHW)

    def _run_stages(self, image_BCHW: Tensor) -> tuple[Tensor, ...]:
        """Compute the maps of images of one size."""
        outputs = []
        map_BCHW = image_BCHW
        for index, stage in enumerate(self.stages[: self.out_indices[-1] + 1]):
            x_BLC, hw_shape = stage(map_BCHW)
            map_BCHW = to_map(x_BLC, hw_shape)
            if index in self.out_indices:
                # Contiguous: compiled ops of mmcv read memory without a look at the strides.
                outputs.append(to_map(self.output_norm(x_BLC, index), hw_shape).contiguous())
        return tuple(outputs)

    def _run_batches(self, batches: Sequence[Tensor]) -> Iterable[Sequence[Tensor]]:
        """Compute the maps of several batches, each of another size.

        In training all of them go through a stage together, which saves the fixed cost of passes.
        Without gradients one after the other needs less memory.
        """
        stages = self.stages[: self.out_indices[-1] + 1]
        # A stage that is wrapped, or has hooks, has to be called.
        changes = (find_change(stage, Stage, ('forward',)) for stage in stages)
        if len(batches) == 1 or not torch.is_grad_enabled() or any(changes):
            return map(self._run_stages, batches)
        outputs = [[] for _ in batches]
        for index, stage in enumerate(stages):
            parts = stage.run_parts(batches)
            batches = [to_map(*part) for part in parts]
            if index in self.out_indices:
                for output, (x_BLC, hw_shape) in zip(outputs, parts, strict=True):
                    output.append(to_map(self.output_norm(x_BLC, index), hw_shape))
        return outputs

    def _add_output_parts(self) -> None:
        """Give each output what it needs of its own; by default nothing."""

    def output_norm(self, x_BLC: Tensor, index: int) -> Tensor:
        """Normalise the tokens of an output; by default they are returned as they are."""
        return x_BLC

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

    def train(self, mode: bool = True) -> 'PyramidBackbone':
        super().train(mode)
        self._freeze()
        return self

    def _frozen_parts(self) -> Iterable[nn.Module]:
        if self.frozen_stages >= 0:
            yield from (self.stages[0].embed, self.stages[0].drop)
        yield from self.stages[: max(self.frozen_stages, 0)]
        # Never run: distributed training must not wait for their gradients.
        yield from self.stages[self.out_indices[-1] + 1 :]

    def _freeze(self) -> None:
        for part in self._frozen_parts():
            part.eval()
            part.requires_grad_(False)
        if self.frozen_stages >= 0 and self.stages[0].pos_embed is not None:
            self.stages[0].pos_embed.requires_grad_(False)

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


def smallest_side(num_stages: int) -> int:
    """Side of the smallest image that has a cell in each stage."""
    return 4 * 2 ** (num_stages - 1)


def check_image(image_BCHW: Tensor, in_channels: int, num_stages: int) -> None:
    """Say what an image batch has to be, should it be something else."""
    if image_BCHW.dim() != 4 or image_BCHW.shape[1] != in_channels:
        raise ValueError(
            f'an image batch has to have the shape (B, {in_channels}, H, W), '
            f'got {tuple(image_BCHW.shape)}'
        )
    smallest = smallest_side(num_stages)
    if min(image_BCHW.shape[-2:]) < smallest:
        raise ValueError(
            f'an image has to be at least {smallest} x {smallest} px for '
            f'{num_stages} stages, got {tuple(image_BCHW.shape[-2:])}: resize or pad it'
        )


def reset_linear(module: nn.Module) -> None:
    """Initialise a linear as published; other layers keep PyTorch's values."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
