"""Checks that attention layers share."""

from torch import Tensor


def check_heads(embed_dims: int, num_heads: int) -> None:
    """Refuse channels that cannot be shared out evenly."""
    if embed_dims < 1 or num_heads < 1 or embed_dims % num_heads:
        raise ValueError(
            f'embed_dims has to be a positive multiple of num_heads, '
            f'got embed_dims={embed_dims} and num_heads={num_heads}'
        )


def check_extra_tokens(num_extra_tokens: int, window_size: int | None = None) -> None:
    """Refuse a number of tokens in front of the grid that a layer cannot have."""
    if not isinstance(num_extra_tokens, int) or num_extra_tokens < 0:
        raise ValueError(
            f'num_extra_tokens has to be a whole number from 0 on, got {num_extra_tokens=}'
        )
    if num_extra_tokens and window_size is not None:
        raise ValueError(
            'window_size has to be None with tokens in front of the grid, which are in no window, '
            f'got {window_size=} and {num_extra_tokens=}'
        )


def check_tokens(
    x_BLC: Tensor, hw_shape: tuple[int, int], embed_dims: int, num_extra_tokens: int = 0
) -> None:
    """Refuse tokens that are not those of the grid, such as a map or one with a class token.

    Args:
        x_BLC: The tokens.
        hw_shape: Height and width of the grid.
        embed_dims: Channels that they should have.
        num_extra_tokens: Tokens that should stand in front of the grid.
    """
    height, width = hw_shape
    num_tokens = num_extra_tokens + height * width
    if x_BLC.dim() != 3 or x_BLC.shape[1] != num_tokens or x_BLC.shape[2] != embed_dims:
        extra = f'{num_extra_tokens} + ' if num_extra_tokens else ''
        raise ValueError(
            f'tokens have to have the shape (B, {extra}H * W, C) = (B, {num_tokens}, {embed_dims}) '
            f'for hw_shape={(height, width)} and embed_dims={embed_dims}, '
            f'got {tuple(x_BLC.shape)}'
        )
