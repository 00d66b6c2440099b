"""Template of the pyramids: a map at stride 4, 8, 16, 32 from each stage."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ...execution.slabs import SlabShape
from ...layers.as_built import find_change
from .stage import Stage, to_map
from .template import Backbone


class PyramidBackbone(Backbone):
    """Image to a tuple of maps at strides 4, 8, 16, 32; for the arguments see ``Backbone``.

    The first stage has stride 4, each other doubles it. ``out_indices`` are stages.
    """

    unit_name = 'stages'

    @property
    def units(self) -> nn.ModuleList:
        return self.stages

    @property
    def smallest_side(self) -> int:
        """Side of the smallest image that has a cell in each stage."""
        return 4 * 2 ** (len(self.stages) - 1)

    def _describe_units(self, sizes: Mapping[str, Sequence]) -> Sequence[tuple[int, int]]:
        return [(channels, 4 * 2**index) for index, channels in enumerate(sizes['embed_dims'])]

    def _run_stages(self, image_BCHW: Tensor, slab: SlabShape | None = None) -> tuple[Tensor, ...]:
        outputs = []
        map_BCHW = image_BCHW
        for index, stage in enumerate(self.stages[: self.out_indices[-1] + 1]):
            x_BLC, hw_shape = stage(map_BCHW, slab and slab.at_stride(4 * 2**index))
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
            return super()._run_batches(batches)
        outputs = [[] for _ in batches]
        for index, stage in enumerate(stages):
            parts = stage.run_parts(batches)
            batches = [to_map(*part) for part in parts]
            if index in self.out_indices:
                for output, (x_BLC, hw_shape) in zip(outputs, parts, strict=True):
                    output.append(to_map(self.output_norm(x_BLC, index), hw_shape))
        return outputs

    def output_norm(self, x_BLC: Tensor, index: int) -> Tensor:
        """Normalise the tokens of an output; by default they are returned as they are."""
        return x_BLC
