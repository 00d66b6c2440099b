"""Padding behind the backbone: necks and dense heads that see zeros beyond each image.

The maps of a backbone are zero where an image is not, which is what convolutions pad an image alone
with. But a bias turns these zeros into something else, and the next 3x3 convolution carries it into
the image. Here the zeros are put back before each convolution that looks at neighbours.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .. import execution
from .backbones.padding import find_sizes

# Parts of a detector that see maps of the whole batch; heads of regions see regions alone.
DENSE_HEADS = ('rpn_head', 'bbox_head')
# Offsets, in sides of an anchor, that move its box out of any image.
FAR = 1e4


def ignore_padding(model: nn.Module) -> None:
    """Let neck and dense head of a detector ignore padding too, as the backbone does.

    Then their outputs for an image in a padded batch are those for the image alone. In inference,
    anchors in the padding propose nothing. Works by hooks on the modules, which stay on the model
    and on copies of it; calling this twice changes nothing. For mmengine's runner, see
    ``IgnorePaddingHook``.

    Args:
        model: Detector, or whatever holds one; the neck of a segmentor is prepared as well.
    """
    count = 0
    for owner in model.modules():
        children = dict(owner.named_children())
        if not getattr(children.get('backbone'), 'ignore_padding', False):
            continue
        heads = [children[name] for name in DENSE_HEADS if name in children]
        parts = [children['neck'], *heads] if 'neck' in children else heads
        convolutions = [each for part in parts for each in part.modules() if _is_wide(each)]
        if convolutions and not _is_prepared(parts[0]):
            _prepare(parts[0], convolutions, heads)
        count += len(convolutions)
    if not count:
        raise ValueError(
            'ignoring padding behind the backbone needs a backbone with ignore_padding=True and '
            f'behind it a neck, rpn_head or bbox_head with convolutions, got {type(model).__name__}'
        )


def _is_wide(module: nn.Module) -> bool:
    """Whether a module is a convolution that looks at neighbours."""
    return isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1


def _is_prepared(first: nn.Module) -> bool:
    hooks = first._forward_pre_hooks.values()
    return any(isinstance(getattr(hook, '__self__', None), _Covered) for hook in hooks)


def _prepare(
    first: nn.Module, convolutions: Sequence[nn.Module], heads: Sequence[nn.Module]
) -> None:
    # Bound methods, not closures: a copy of the model, or a pickled one, has its own record.
    covered = _Covered()
    first.register_forward_pre_hook(covered.read_maps)
    for convolution in convolutions:
        convolution.register_forward_pre_hook(covered.clear_input)
    for head in heads:
        if getattr(head, 'use_sigmoid_cls', False):
            head.register_forward_hook(covered.drop_anchors)


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
        is_covered = self._find(inputs[0])
        return None if is_covered is None else (torch.where(is_covered, inputs[0], 0), *inputs[1:])

    def drop_anchors(self, head: nn.Module, inputs: tuple, outputs: tuple) -> tuple | None:
        """Give anchors in the padding score 0 and an empty box, as a forward hook of a dense head.

        In inference only: in training they are examples of the background.
        """
        if head.training or self.sizes is None or not isinstance(outputs[0], (list, tuple)):
            return None
        scores = [self._fill_beyond(each, -torch.inf) for each in outputs[0]]
        boxes = [self._fill_beyond(each, FAR) for each in outputs[1]]
        return (scores, boxes, *outputs[2:])

    def _fill_beyond(self, map_BCHW: Tensor, value: float) -> Tensor:
        is_covered = self._find(map_BCHW)
        return map_BCHW if is_covered is None else torch.where(is_covered, map_BCHW, value)

    def _find(self, map_BCHW: Tensor) -> Tensor | None:
        """Tell which cells of a map images cover, ``(B, 1, H, W)``; None for all, or unknown."""
        if self.sizes is None or len(map_BCHW) != len(self.sizes):
            return None
        sizes, hw_shape = self.sizes, self.hw_shape
        # The stride doubles from level to level.
        while hw_shape != map_BCHW.shape[2:] and max(hw_shape) > 1:
            sizes, hw_shape = list(map(_halve, sizes)), _halve(hw_shape)
        if hw_shape != map_BCHW.shape[2:]:
            return None
        groups = [execution.Group(1, size) for size in sizes]
        return execution.find_covered(groups, hw_shape, map_BCHW.device).unsqueeze(1)


def _halve(size: tuple[int, int]) -> tuple[int, int]:
    return -(-size[0] // 2), -(-size[1] // 2)
