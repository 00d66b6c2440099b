"""Checks that attention layers share."""

from torch import Tensor


def check_heads(embed_dims: int, num_heads: int) -> None:
    """Refuse channels that cannot be shared out evenly."""
    if embed_dims < 1 or num_heads < 1 or embed_dims % num_heads:
        raise ValueError(
            f'embed_dims has to be a positive multiple of num_heads, '
            f'got embed_dims={embed_dims} and num_heads={num_heads}'
        )


def check_tokens(x_BLC: Tensor, hw_shape: tuple[int, int], embed_dims: int) -> None:
    """Refuse tokens that are not those of the grid, such as a map or one with a class token."""
    height, width = hw_shape
    if x_BLC.dim() != 3 or x_BLC.shape[1] != height * width or x_BLC.shape[2] != embed_dims:
        raise ValueError(
            f'tokens have to have the shape (B, H * W, C) = (B, {height * width}, {embed_dims}) '
            f'for hw_shape={(height, width)} and embed_dims={embed_dims}, '
            f'got {tuple(x_BLC.shape)}'
        )
