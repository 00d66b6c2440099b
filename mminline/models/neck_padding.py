"""Padding behind the backbone: neck and heads that see each image as if it were alone.

The maps of a backbone are zero where an image is not, which is what convolutions pad an image alone
with. But a bias turns these zeros into something else, and the next 3x3 convolution carries it into
the image. Here the zeros are put back before each convolution that looks at neighbours. Two things
remain, that anchors lie in the padding, and that RoIAlign looks half a cell beyond the border.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from .. import execution
from .backbones.padding import find_sizes

# Heads that see maps of the whole batch; heads of regions see regions alone.
DENSE_HEADS = ('rpn_head', 'bbox_head')
# Offset, in sides of an anchor, that moves its box out of any image.
FAR = 1e4


def ignore_padding(model: nn.Module) -> None:
    """Let neck and heads of a detector ignore padding too, as the backbone does.

    Then what they compute for an image in a padded batch is what they compute for the image alone,
    in training and inference. Works by hooks on the modules, which stay on the model and on copies
    of it, and sets ``ignores_padding`` of the detector; calling this twice changes nothing. For
    mmengine's runner, see ``IgnorePaddingHook``.

    Args:
        model: Detector, or whatever holds one. Of a segmentor, the neck is prepared.
    """
    count = 0
    for owner in model.modules():
        children = dict(owner.named_children())
        if not getattr(children.get('backbone'), 'ignore_padding', False):
            continue
        names = [name for name in ('neck', *DENSE_HEADS) if name in children]
        convolutions = [
            each for name in names for each in children[name].modules() if _is_wide(each)
        ]
        if convolutions and 'ignores_padding' not in vars(owner):
            _prepare({name: children[name] for name in names}, convolutions, 'roi_head' in children)
            owner.ignores_padding = True
        count += len(convolutions)
    if not count:
        raise ValueError(
            'ignoring padding behind the backbone needs a backbone with ignore_padding=True and '
            f'behind it a neck, rpn_head or bbox_head with convolutions, got {type(model).__name__}'
        )


def _is_wide(module: nn.Module) -> bool:
    """Whether a module is a convolution that looks at neighbours."""
    return isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1


def _prepare(
    parts: Mapping[str, nn.Module], convolutions: Sequence[nn.Module], has_regions: bool
) -> None:
    # Bound methods, not closures: a copy of the model, or a pickled one, has its own record.
    covered = _Covered()
    first = next(iter(parts.values()))
    first.register_forward_pre_hook(covered.read_maps)
    for convolution in convolutions:
        convolution.register_forward_pre_hook(covered.clear_input)
    for name, part in parts.items():
        if name == 'neck' and has_regions:
            part.register_forward_hook(covered.continue_borders)
        elif getattr(part, 'use_sigmoid_cls', False):
            part.register_forward_hook(covered.drop_anchors)


class _Covered:
    """Cells that each image of a batch covers, and hooks for modules that see its maps."""

    def __init__(self) -> None:
        self.hw_shape = (0, 0)
        self.sizes: list[tuple[int, int]] | None = None

    def read_maps(self, module: nn.Module, inputs: tuple) -> None:
        """Find the sizes in the maps of a backbone, as a forward pre-hook of what gets them."""
        self.sizes = None
        if execution.can_read(inputs[0][0]):
            # Most cells: the smallest stride.
            finest = max(inputs[0], key=lambda each: each.shape[2] * each.shape[3])
            self.hw_shape = tuple(finest.shape[2:])
            self.sizes = find_sizes(finest, pad_value=0.0, smallest=1)

    def clear_input(self, module: nn.Module, inputs: tuple) -> tuple | None:
        """Set a map to zero beyond each image, as a forward pre-hook of a convolution."""
        sizes = self._sizes_in(inputs[0])
        return None if sizes is None else (_fill_beyond(inputs[0], sizes, 0), *inputs[1:])

    def continue_borders(self, neck: nn.Module, inputs: tuple, outputs: tuple) -> tuple | None:
        """Repeat the last cells of images beyond their border, as RoIAlign does where maps end."""
        if self.sizes is None:
            return None
        return tuple(_continue_borders(each, self._sizes_in(each)) for each in outputs)

    def drop_anchors(self, head: nn.Module, inputs: tuple, outputs: tuple) -> tuple | None:
        """Give anchors in the padding score 0 and an empty box, as a forward hook of a dense head.

        In inference only: in training they are examples of the background.
        """
        if head.training or self.sizes is None or not isinstance(outputs[0], (list, tuple)):
            return None
        scores, boxes = (
            [_fill_beyond(each, self._sizes_in(each), value) for each in maps]
            for maps, value in zip(outputs, (-torch.inf, FAR), strict=False)
        )
        return (scores, boxes, *outputs[2:])

    def _sizes_in(self, map_BCHW: Tensor) -> list[tuple[int, int]] | None:
        """Rows and columns of a map that each image covers; None for all, or if unknown."""
        if self.sizes is None or len(map_BCHW) != len(self.sizes):
            return None
        sizes, hw_shape = self.sizes, self.hw_shape
        # The stride doubles from level to level.
        while hw_shape != map_BCHW.shape[2:] and max(hw_shape) > 1:
            sizes, hw_shape = list(map(_halve, sizes)), _halve(hw_shape)
        return sizes if hw_shape == map_BCHW.shape[2:] else None


def _fill_beyond(map_BCHW: Tensor, sizes: Sequence[tuple[int, int]] | None, value: float) -> Tensor:
    if sizes is None:
        return map_BCHW
    groups = [execution.Group(1, size) for size in sizes]
    is_covered_BHW = execution.find_covered(groups, map_BCHW.shape[2:], map_BCHW.device)
    return torch.where(is_covered_BHW.unsqueeze(1), map_BCHW, value)


def _continue_borders(map_BCHW: Tensor, sizes: Sequence[tuple[int, int]] | None) -> Tensor:
    if sizes is None:
        return map_BCHW
    ends_2B = torch.tensor(sizes, device=map_BCHW.device).t()
    for axis, ends_B in zip((2, 3), ends_2B, strict=True):
        is_next_BL = ends_B[:, None] == torch.arange(map_BCHW.shape[axis], device=map_BCHW.device)
        is_next_BCHW = is_next_BL[:, None, :, None] if axis == 2 else is_next_BL[:, None, None]
        map_BCHW = torch.where(is_next_BCHW, map_BCHW.roll(1, dims=axis), map_BCHW)
    return map_BCHW


def _halve(size: tuple[int, int]) -> tuple[int, int]:
    return -(-size[0] // 2), -(-size[1] // 2)
