"""The MLP of a block.

Its hidden channels are the widest tensors of a backbone. On a CPU it takes longer to write them to
memory than to compute them, and to keep them for the backward pass is most of the memory of
training. So tokens go through in chunks whose hidden channels stay in the cache; they are not
kept, but computed once more in the backward pass.
"""

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from .fused import has_hooks, is_unobserved_linear, linear, linear_gelu, runs_eagerly

# Hidden values of a chunk, 2 MB in float32, and the number from which on chunks pay.
CHUNK_VALUES = 1 << 19
MANY_VALUES = 1 << 21


class MLP(BaseModule):
    """Two linears with a GELU between.

    Args:
        embed_dims: Channels of the tokens.
        ratio: Hidden channels for each channel of the tokens.
        drop_rate: Dropout after the second linear.
    """

    def __init__(self, embed_dims: int, ratio: float, drop_rate: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, int(embed_dims * ratio))
        self.act = nn.GELU()
        self.fc2 = nn.Linear(int(embed_dims * ratio), embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x_BLC: Tensor) -> Tensor:
        if self._is_as_built():
            parameters = (self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)
            return self.drop(mlp(x_BLC, *parameters))
        return self.drop(self.fc2(self.act(self.fc1(x_BLC))))

    def _is_as_built(self) -> bool:
        """Whether no layer was wrapped, exchanged or hooked."""
        return (
            is_unobserved_linear(self.fc1)
            and is_unobserved_linear(self.fc2)
            and type(self.act) is nn.GELU
            and self.act.approximate == 'none'
            and not has_hooks(self.act)
        )


def mlp(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    """Linear, exact GELU, linear."""
    parameters = (weight1, bias1, weight2, bias2)
    if (
        runs_eagerly(x)
        and x.device.type == 'cpu'
        # Sums over chunks would lose digits in half precision.
        and x.dtype == weight1.dtype
        and x.dtype in (torch.float32, torch.float64)
        and x.numel() // x.shape[-1] * len(weight1) > MANY_VALUES
    ):
        return _ChunkedMLP.apply(x.flatten(0, -2), *parameters).view(x.shape)
    return linear(linear_gelu(x, weight1, bias1), weight2, bias2)


class _ChunkedMLP(torch.autograd.Function):
    """``mlp`` of many tokens, ``(L, C)``, of which the hidden channels never leave the cache."""

    @staticmethod
    def forward(ctx, x, weight1, bias1, weight2, bias2):
        ctx.save_for_backward(x, weight1, bias1, weight2)
        ctx.chunk = max(CHUNK_VALUES // len(weight1), 1)
        out = torch.empty_like(x)
        for x_part, out_part in zip(x.split(ctx.chunk), out.split(ctx.chunk), strict=True):
            out_part.copy_(linear(linear_gelu(x_part, weight1, bias1), weight2, bias2))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, out_grad):
        x, weight1, bias1, weight2 = ctx.saved_tensors
        x_grad = torch.empty_like(x)
        grads = [torch.zeros_like(parameter) for parameter in (weight1, bias1, weight2)]
        weight1_grad, bias1_grad, weight2_grad = grads
        # Rows and columns exchanged once, not for every chunk.
        back1, back2 = weight1.t().contiguous(), weight2.t().contiguous()
        parts = (tensor.split(ctx.chunk) for tensor in (x, x_grad, out_grad))
        for x_part, x_grad_part, out_grad_part in zip(*parts, strict=True):
            hidden = linear(x_part, weight1, bias1)
            weight2_grad.addmm_(out_grad_part.t(), F.gelu(hidden))
            active_grad = linear(out_grad_part, back2, None)
            hidden_grad = torch.ops.aten.gelu_backward(active_grad, hidden)
            weight1_grad.addmm_(hidden_grad.t(), x_part)
            bias1_grad += hidden_grad.sum(dim=0)
            x_grad_part.copy_(linear(hidden_grad, back1, None))
        return x_grad, weight1_grad, bias1_grad, weight2_grad, out_grad.sum(dim=0)
