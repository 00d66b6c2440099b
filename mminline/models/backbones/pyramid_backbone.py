"""Template of the pyramids: a map at stride 4, 8, 16, 32 from each stage."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ... import execution
from ...execution.slabs import SlabShape
from .padding import group_by_size
from .stage import is_changed, to_map
from .template import Backbone

# Pixels of a batch up to which images of several sizes run together in inference.
SMALL = 2**18


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
                out_BCHW = to_map(self.output_norm(x_BLC, index), hw_shape)
                outputs.append(execution.to_order(out_BCHW, self.memory_format))
        return tuple(outputs)

    def _run_at_own_sizes(
        self, image_BCHW: Tensor, sizes: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, ...]:
        if not self._can_pack(sizes):
            return super()._run_at_own_sizes(image_BCHW, sizes)
        members = group_by_size(sizes)
        order = [index for indices in members.values() for index in indices]
        if order == sorted(order):
            return self._run_packed(image_BCHW, members)
        places = [order.index(index) for index in range(len(order))]
        return tuple(part[places] for part in self._run_packed(image_BCHW[order], members))

    def _can_pack(self, sizes: Sequence[tuple[int, int]]) -> bool:
        """Whether all images go through a stage together, which saves the fixed cost of passes."""
        if len(set(sizes)) == 1 or execution.is_forced_plain() or execution.find_observer():
            return False
        is_own = type(self)._run_stages is PyramidBackbone._run_stages
        if not is_own or '_run_stages' in vars(self):  # replaced, so it has to be called
            return False
        # Without gradients one size after the other needs less memory.
        if not torch.is_grad_enabled() and sum(map(math.prod, sizes)) > SMALL:
            return False
        return not any(map(is_changed, self.stages[: self.out_indices[-1] + 1]))

    def _run_packed(
        self, image_BCHW: Tensor, members: Mapping[tuple[int, int], Sequence[int]]
    ) -> tuple[Tensor, ...]:
        """Compute the maps of images that are in the order of their sizes."""
        if self.pad_value or image_BCHW.requires_grad:
            # Patches at the border of an image end with zeros, as those of the image alone do, and
            # these have no gradient.
            is_image_BHW = execution.find_covered(
                _make_groups(members, 1), image_BCHW.shape[2:], image_BCHW.device
            )
            image_BCHW = torch.where(is_image_BHW.unsqueeze(1), image_BCHW, 0)
        outputs, map_BCHW = [], image_BCHW
        for index, stage in enumerate(self.stages[: self.out_indices[-1] + 1]):
            groups = _make_groups(members, 4 * 2**index)
            x_1LC, hw_shape = stage.run_packed(map_BCHW, groups)
            map_BCHW = _to_maps(x_1LC, groups, hw_shape)
            if index in self.out_indices:
                out_1LC = self.output_norm(x_1LC, index)
                out_BCHW = map_BCHW if out_1LC is x_1LC else _to_maps(out_1LC, groups, hw_shape)
                outputs.append(execution.to_order(out_BCHW, self.memory_format))
        return tuple(outputs)

    def output_norm(self, x_BLC: Tensor, index: int) -> Tensor:
        """Normalise the tokens of an output; by default they are returned as they are."""
        return x_BLC


def _make_groups(
    members: Mapping[tuple[int, int], Sequence[int]], stride: int
) -> tuple[execution.Group, ...]:
    """Describe the grids of images, of which each cell has a side of so many pixels."""
    return tuple(
        execution.Group(len(indices), tuple(-(-side // stride) for side in size))
        for size, indices in members.items()
    )


def _to_maps(x_1LC: Tensor, groups: Sequence[execution.Group], hw_shape: tuple[int, int]) -> Tensor:
    """Put packed tokens into maps of one size, zero where an image is not."""
    return execution.to_grids(x_1LC, groups, hw_shape).permute(0, 3, 1, 2)
