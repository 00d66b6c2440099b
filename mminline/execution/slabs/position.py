"""Position embedding of a slab."""

from torch import Tensor

from ... import layers
from .shape import SlabShape


def resize_position(position_1HWC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Resize a position embedding to a grid, and return the tokens of the own slab of it."""
    if not isinstance(hw_shape, SlabShape):
        return layers.resize_position(position_1HWC, hw_shape)
    tall_1HWC = layers.resize_rows(position_1HWC, hw_shape.whole[0])
    own_1HWC = tall_1HWC[:, hw_shape.top : hw_shape.top + hw_shape[0]]
    return layers.resize_columns(own_1HWC, hw_shape[1]).flatten(1, 2)
