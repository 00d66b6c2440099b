"""Template of the pyramids: a map at stride 4, 8, 16, 32 from each stage."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from ...execution.slabs import SlabShape
from .stage import to_map
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

    def output_norm(self, x_BLC: Tensor, index: int) -> Tensor:
        """Normalise the tokens of an output; by default they are returned as they are."""
        return x_BLC
