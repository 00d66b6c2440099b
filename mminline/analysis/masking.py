"""Take keys away from the attention of each query, and see what the model makes of the rest.

A hidden key is no key: softmax, the division of plain linear attention, and the mean and the
count of InLine attention are over those that are left. A query with none left gets zeros. The
local residual is no part of the attention and stays.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..layers.attention import AttentionWeights
from .hooks import attention_hooks


class Mask(NamedTuple):
    """Rule by which keys are hidden from each query.

    Attributes:
        kind: 'local' for the square around it, 'random' for as many keys anywhere, drawn anew for
            each query, image and layer; 'none'.
        side: Side of the square, in keys.
    """

    kind: str = 'none'
    side: int = 0


def hidden_keys(
    attention: AttentionWeights,
    mask: Mask,
    groups: slice,
    rows: slice,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Keys that some queries lose, ``(B, L, M)``."""
    visible_BLM = attention.visible(groups, rows)
    if mask.kind == 'none':
        return torch.zeros_like(visible_BLM)
    index_LK, seen_BLK = attention.neighbours(groups, rows, mask.side)
    if mask.kind == 'local':
        hidden_BLM = torch.zeros_like(visible_BLM, dtype=torch.int)
        # Beyond the border an index is that of another key, so values are added, not set.
        hidden_BLM.scatter_add_(-1, index_LK.expand_as(seen_BLK), seen_BLK.int())
        return hidden_BLM > 0
    if mask.kind != 'random':
        raise ValueError(f"kind has to be 'none', 'local' or 'random', got kind={mask.kind!r}")
    random_BLM = torch.rand(visible_BLM.shape, generator=generator).to(visible_BLM.device)
    random_BLM = random_BLM.masked_fill(~visible_BLM, 2)
    count_BL1 = seen_BLK.sum(dim=-1, keepdim=True)
    lowest_BLK = random_BLM.topk(min(mask.side**2, random_BLM.shape[-1]), largest=False).values
    last_BL1 = lowest_BLK.gather(-1, (count_BL1 - 1).clamp(min=0))
    return (random_BLM <= last_BL1) & (count_BL1 > 0)


@contextlib.contextmanager
def masked_attention(layers: dict[str, nn.Module], mask: Mask, seed: int = 0) -> Iterator[None]:
    """Run the layers with keys hidden.

    Args:
        layers: Layers as ``find_layers`` gives them.
        mask: What is hidden.
        seed: Of random masks.
    """
    generator = torch.Generator().manual_seed(seed)

    def visit(name: str, attention: AttentionWeights) -> Tensor:
        return attention.mix(
            lambda groups, rows: hidden_keys(attention, mask, groups, rows, generator)
        )

    with attention_hooks(layers, visit):
        yield
