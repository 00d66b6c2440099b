"""Linears in one pass: the same numbers, and nobody who watches a layer is passed by."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import profile
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from mminline.layers import MLP
from mminline.layers.fused import call_linear, linear, linear_gelu

FUSED = 'mkldnn::_linear_pointwise'


def random_linear(shape=(2, 7, 5), out_channels=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [shape, (out_channels, shape[-1]), (out_channels,)]
    return [torch.randn(size, generator=generator, dtype=dtype) for size in shapes]


def names_of_operations(function, *inputs):
    with profile() as record:
        function(*inputs)
    return {event.name for event in record.events()}


@pytest.mark.parametrize('shape', [(1, 1), (7, 5), (2, 33, 16), (1, 2, 3, 8), (0, 4)])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_fused_layers_equal_those_of_pytorch(shape, dtype):
    x, weight, bias = random_linear(shape, dtype=dtype)
    with torch.no_grad():
        assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
        assert_close(linear(x, weight, None), F.linear(x, weight))
        assert_close(linear_gelu(x, weight, bias), F.gelu(F.linear(x, weight, bias)))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason='PyTorch without oneDNN')
def test_inference_in_float32_is_fused_and_nothing_else():
    x, weight, bias = random_linear()
    with torch.no_grad():
        assert FUSED in names_of_operations(linear, x, weight, bias)
        assert FUSED in names_of_operations(linear_gelu, x, weight, bias)
        assert FUSED not in names_of_operations(linear, *random_linear(dtype=torch.float64))
        with torch.autocast('cpu', dtype=torch.bfloat16):
            assert FUSED not in names_of_operations(linear, x, weight, bias)
        with torch.backends.mkldnn.flags(enabled=False):
            assert FUSED not in names_of_operations(linear, x, weight, bias)
    assert FUSED not in names_of_operations(linear, x, weight, bias)


def test_gradients_come_back_through_layers_that_could_be_fused():
    tensors = [tensor.requires_grad_() for tensor in random_linear(dtype=torch.float64)]
    torch.autograd.gradcheck(linear_gelu, tensors)


def test_a_counter_of_flops_sees_the_products():
    x, weight, bias = random_linear((4, 5), out_channels=3)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        linear(x, weight, bias)
    assert counter.get_total_flops() == 2 * 4 * 5 * 3


def test_a_wrapped_or_hooked_linear_is_called():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    doubled, hooked = Doubled(5, 3), nn.Linear(5, 3)
    hooked.register_forward_hook(lambda layer, inputs, out: out + 1)
    x = random_linear()[0]
    with torch.no_grad():
        assert_close(call_linear(doubled, x), 2 * F.linear(x, doubled.weight, doubled.bias))
        assert_close(call_linear(hooked, x), F.linear(x, hooked.weight, hooked.bias) + 1)


def test_a_bias_with_gaps_is_read_as_it_is():
    # As pruning of channels leaves it, and oneDNN would not.
    x, weight, bias = random_linear()
    sparse = torch.randn(2 * len(bias))[::2]
    with torch.no_grad():
        assert_close(linear(x, weight, sparse), F.linear(x, weight, sparse))
        assert_close(linear(x, weight, bias[:1].expand(3)), F.linear(x, weight, bias[:1].expand(3)))


def test_weights_without_values_are_refused_as_ever():
    with torch.no_grad(), pytest.raises(RuntimeError, match='meta'):
        MLP(4, 2).to('meta')(torch.randn(1, 5, 4))


def test_a_forward_that_was_replaced_is_used():
    layer, x = nn.Linear(5, 3), random_linear()[0]
    layer.forward = lambda x: torch.full((3,), 7.0)
    with torch.no_grad():
        assert call_linear(layer, x).tolist() == [7, 7, 7]


@pytest.mark.parametrize('part', ['fc1', 'act', 'fc2'])
def test_a_backward_hook_on_any_part_of_an_mlp_is_called(part):
    mlp, seen = MLP(6, 2), []
    getattr(mlp, part).register_full_backward_hook(lambda layer, *grads: seen.append(layer))
    mlp(torch.randn(1, 4, 6, requires_grad=True)).sum().backward()
    assert seen == [getattr(mlp, part)]


@pytest.mark.parametrize('part', ['fc1', 'act', 'fc2'])
def test_a_hook_on_any_part_of_an_mlp_is_called(part):
    mlp, seen = MLP(6, 2), []
    getattr(mlp, part).register_forward_pre_hook(lambda layer, inputs: seen.append(layer))
    with torch.no_grad():
        mlp(torch.randn(1, 4, 6))
    assert seen == [getattr(mlp, part)]


def test_another_activation_in_an_mlp_is_used():
    mlp = MLP(6, 2)
    mlp.act = nn.ReLU()
    x = torch.randn(1, 4, 6)
    with torch.no_grad():
        assert_close(mlp(x), mlp.fc2(mlp.fc1(x).relu()))
