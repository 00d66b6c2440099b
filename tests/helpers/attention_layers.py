"""Attention layers written out cell by cell from their definition: the oracle of the tests."""

import torch
import torch.nn.functional as F
from torch import Tensor

from mminline.layers import InLineAttention, SoftmaxAttention, reference

FEATURE_MAPS = {
    'identity': lambda x: x,
    'relu': lambda x: x.clamp(min=0),
    'leaky_relu': lambda x: torch.where(x > 0, x, 0.01 * x),
    'exp': lambda x: (0.2 * x).exp(),
}


def split_heads(x_BLC: Tensor, num_heads: int) -> Tensor:
    """Give each head its consecutive channels, (B, N, L, D)."""
    return torch.stack(x_BLC.chunk(num_heads, dim=-1), dim=1)


def join_heads(x_BNLD: Tensor) -> Tensor:
    return torch.cat(x_BNLD.unbind(1), dim=-1)


def local_kernel(layer: InLineAttention, mean_BC: Tensor) -> Tensor:
    """Kernels of the mean token, head by head: nine consecutive numbers for each channel."""
    first, _, second = layer.local_kernel
    kernels = []
    for mean_BD, weight1, bias1, weight2, bias2 in zip(
        mean_BC.chunk(layer.num_heads, dim=-1),
        *(
            parameter.squeeze(-1).chunk(layer.num_heads)
            for parameter in (
                first.weight,
                first.bias[:, None],
                second.weight,
                second.bias[:, None],
            )
        ),
        strict=True,
    ):
        hidden_BD = F.gelu(mean_BD @ weight1.T + bias1)
        kernels.append((hidden_BD @ weight2.T + bias2).unflatten(-1, (-1, 3, 3)))
    return torch.cat(kernels, dim=1)


def inline_tokens(layer: InLineAttention, x_BLC: Tensor) -> tuple[Tensor, Tensor]:
    """Mixed values and values of tokens that all see each other, by explicit weights."""
    q, k, v_BLC = F.linear(x_BLC, layer.qkv.weight, layer.qkv.bias).chunk(3, dim=-1)
    feature_map = FEATURE_MAPS[layer.feature_map]
    q, k = (feature_map(split_heads(part, layer.num_heads)) for part in (q, k))
    if layer.injective:
        weights = reference.inline_weights(q, k, (x_BLC.shape[-1] / layer.num_heads) ** -0.5)
    else:
        weights = reference.linear_weights(q, k)
    return join_heads(weights @ split_heads(v_BLC, layer.num_heads)), v_BLC


def inline_layer(layer: InLineAttention, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """The whole layer on the whole map."""
    mixed, values = inline_tokens(layer, x_BLC)
    if layer.local_kernel is not None:
        kernels = local_kernel(layer, x_BLC.mean(dim=1))
        mixed = mixed + reference.local_residual(values, kernels, hw_shape, layer.num_extra_tokens)
    return F.linear(mixed, layer.proj.weight, layer.proj.bias)


def window_places(hw_shape: tuple[int, int], window: int, shift: int) -> Tensor:
    """For each cell of the padded grid, row by row: row and column after the roll."""
    height, width = (-(-side // window) * window for side in hw_shape)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij')
    return torch.stack([(rows - shift) % height, (columns - shift) % width], dim=-1)


def windowed_inline_layer(
    layer: InLineAttention, x_BLC: Tensor, hw_shape: tuple[int, int], shift: int
) -> Tensor:
    """The whole layer, one window after the other, on the cells of the map alone."""
    window, (height, width) = layer.window_size, hw_shape
    places = window_places(hw_shape, window, shift)[:height, :width].flatten(0, 1)
    out = torch.zeros_like(x_BLC)
    for row, column in (places // window).unique(dim=0).tolist():
        inside = (places // window == torch.tensor([row, column])).all(dim=-1).nonzero().flatten()
        cells = places[inside] - window * torch.tensor([row, column])
        mixed, values = inline_tokens(layer, x_BLC[:, inside])
        if layer.local_kernel is not None:
            grid = x_BLC.new_zeros(len(x_BLC), window * window, x_BLC.shape[-1])
            flat = cells[:, 0] * window + cells[:, 1]
            grid = grid.index_copy(1, flat, values)
            kernels = local_kernel(layer, x_BLC[:, inside].mean(dim=1))
            mixed = mixed + reference.local_residual(grid, kernels, (window, window))[:, flat]
        out = out.index_copy(1, inside, mixed)
    return F.linear(out, layer.proj.weight, layer.proj.bias)


def softmax_layer(
    layer: SoftmaxAttention, x_BLC: Tensor, hw_shape: tuple[int, int], shift: int
) -> Tensor:
    """Softmax over all cells of the padded grid, with those of other windows or sides hidden."""
    window, (height, width), num_heads = layer.window_size, hw_shape, layer.num_heads
    places = window_places(hw_shape, window, shift)
    padded_height, padded_width = places.shape[:2]
    padded = F.pad(
        x_BLC.unflatten(1, hw_shape), (0, 0, 0, padded_width - width, 0, padded_height - height)
    ).flatten(1, 2)
    # Cells that the roll took from the top or the left are strangers in the last windows.
    rolled = torch.stack(torch.meshgrid(*map(torch.arange, places.shape[:2]), indexing='ij'), -1)
    groups = torch.cat([places // window, rolled < shift], dim=-1).flatten(0, 1)
    hidden = (groups[:, None] != groups[None]).any(dim=-1)
    places = places.flatten(0, 1)
    offset = (places[:, None] - places[None]).clamp(1 - window, window - 1) + window - 1
    bias = layer.relative_position_bias_table[offset[..., 0] * (2 * window - 1) + offset[..., 1]]
    bias = bias.permute(2, 0, 1).masked_fill(hidden, -torch.inf)
    q, k, v = (
        split_heads(part, num_heads)
        for part in F.linear(padded, layer.qkv.weight, layer.qkv.bias).chunk(3, dim=-1)
    )
    weights = reference.softmax_weights(q, k, q.shape[-1] ** -0.5, bias)
    mixed = join_heads(weights @ v).unflatten(1, (padded_height, padded_width))
    mixed = mixed[:, :height, :width].flatten(1, 2)
    return F.linear(mixed, layer.proj.weight, layer.proj.bias)
