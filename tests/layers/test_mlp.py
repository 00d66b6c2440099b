"""The MLP in chunks against the chain of its layers."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from mminline.layers import MLP
from mminline.layers import mlp as mlp_module
from mminline.layers.mlp import mlp


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of three tokens at 8 hidden channels, from the first token on."""
    monkeypatch.setattr(mlp_module, 'CHUNK_VALUES', 24)
    monkeypatch.setattr(mlp_module, 'MANY_VALUES', 0)


def random_mlp(shape=(2, 5, 4), hidden=8, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    channels = shape[-1]
    shapes = [shape, (hidden, channels), (hidden,), (channels, hidden), (channels,)]
    return [torch.randn(size, generator=generator, dtype=dtype).requires_grad_() for size in shapes]


def chain(x, weight1, bias1, weight2, bias2):
    return F.linear(F.gelu(F.linear(x, weight1, bias1)), weight2, bias2)


@pytest.mark.parametrize('shape', [(1, 4), (3, 4), (7, 4), (2, 5, 4), (1, 1, 3, 4)])
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
def test_chunks_equal_the_chain_in_values_and_gradients(small_chunks, shape, dtype):
    inputs = random_mlp(shape, dtype=dtype)
    fast, slow = mlp(*inputs), chain(*inputs)
    cotangent = torch.randn_like(slow)

    assert type(fast.grad_fn.next_functions[0][0]).__name__ == '_ChunkedMLPBackward'
    assert_close(fast, slow)
    assert_close(
        torch.autograd.grad(fast, inputs, cotangent), torch.autograd.grad(slow, inputs, cotangent)
    )


def test_gradients_of_chunks_are_those_of_finite_differences(small_chunks):
    torch.autograd.gradcheck(mlp, random_mlp())


def test_second_derivatives_of_chunks_are_those_of_finite_differences(small_chunks):
    torch.autograd.gradgradcheck(mlp, random_mlp((2, 4)))


def test_gradients_by_functional_transforms_are_the_same(small_chunks):
    x, *parameters = random_mlp()
    found = torch.func.grad(lambda x: mlp(x, *parameters).sum())(x)
    assert_close(found, torch.autograd.grad(chain(x, *parameters).sum(), x)[0])


@pytest.mark.parametrize('missing', [2, 4])
def test_a_bias_may_be_missing(small_chunks, missing):
    inputs = random_mlp()
    inputs[missing] = None
    fast, slow = mlp(*inputs), chain(*inputs)
    given = [tensor for tensor in inputs if tensor is not None]

    assert_close(fast, slow)
    assert_close(torch.autograd.grad(fast.sum(), given), torch.autograd.grad(slow.sum(), given))


def test_backward_under_autocast_of_a_forward_without_it(small_chunks):
    inputs = random_mlp(dtype=torch.float32)
    out = mlp(*inputs)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        found = torch.autograd.grad(out.sum(), inputs)
    assert_close(found, torch.autograd.grad(chain(*inputs).sum(), inputs))


def test_chunks_take_tokens_that_do_not_lie_in_order(small_chunks):
    x, *parameters = random_mlp((5, 2, 4))
    x = x.transpose(0, 1)
    assert_close(mlp(x, *parameters), chain(x, *parameters))


def test_hidden_channels_are_not_kept_for_the_backward_pass(monkeypatch):
    def kept_widths():
        widths = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: widths.append(tensor.shape[-1]) or tensor, lambda tensor: tensor
        ):
            layer(x).sum()
        return widths

    layer, x = MLP(4, 25), torch.randn(3, 7, 4)
    assert kept_widths().count(100) > 1  # the bias of the first linear is one
    monkeypatch.setattr(mlp_module, 'MANY_VALUES', 0)
    # As rows, tokens and hidden channels would be (21, 100).
    assert sorted(kept_widths()) == [4, 4, 100, 100]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_not_summed_over_chunks(small_chunks, dtype):
    inputs = random_mlp(dtype=dtype)
    assert_close(mlp(*inputs), chain(*inputs))
    assert 'ChunkedMLP' not in type(mlp(*inputs).grad_fn).__name__


def test_a_large_mlp_runs_in_chunks_by_itself():
    layer = MLP(4, 128).double()
    x = torch.randn(1, mlp_module.MANY_VALUES // 512 + 1, 4, dtype=torch.float64)
    out = layer(x)

    assert_close(out, layer.fc2(F.gelu(layer.fc1(x))))
    assert type(out.grad_fn.next_functions[0][0]).__name__ == '_ChunkedMLPBackward'
