"""The MLP in chunks against the chain of its layers."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from helpers.tiny import randomize
from mminline.execution import cache
from mminline.execution.mlp import run_mlp
from mminline.layers import MLP


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of a token or two, so that a few tokens are many."""
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 10)


def make_mlp(dtype=torch.float64, **options):
    return randomize(MLP(4, 2, **options)).to(dtype)


def tokens(shape=(2, 5, 4), dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def gradients(out, mlp, x, cotangent):
    return torch.autograd.grad(out, [x, *mlp.parameters()], cotangent)


@pytest.mark.parametrize('one_pass', [False, True])
@pytest.mark.parametrize('shape', [(1, 6, 4), (3, 7, 4), (2, 5, 4)])
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
def test_chunks_equal_the_chain_in_values_and_gradients(small_chunks, shape, dtype, one_pass):
    if one_pass and (dtype != torch.float32 or not torch.backends.mkldnn.is_available()):
        pytest.skip('oneDNN takes float32 alone')
    mlp, x = make_mlp(dtype), tokens(shape, dtype)
    fast, slow = run_mlp(mlp, x, one_pass), mlp(x)
    cotangent = torch.randn_like(slow)

    assert 'ChunkedMLP' in repr(fast.grad_fn.next_functions)
    assert_close(fast, slow)
    assert_close(gradients(fast, mlp, x, cotangent), gradients(slow, mlp, x, cotangent))


def functional(x, *parameters):
    mlp = make_mlp()
    names = [name for name, _ in mlp.named_parameters()]
    for name, value in zip(names, parameters, strict=True):
        layer, _, tensor = name.partition('.')
        delattr(getattr(mlp, layer), tensor)
        setattr(getattr(mlp, layer), tensor, value)
    return run_mlp(mlp, x, one_pass=False)


def test_derivatives_of_chunks_are_those_of_finite_differences(small_chunks):
    inputs = [
        tokens((1, 6, 4)),
        *(part.detach().requires_grad_() for part in make_mlp().parameters()),
    ]
    torch.autograd.gradcheck(functional, inputs)
    torch.autograd.gradgradcheck(functional, inputs)


def test_backward_under_autocast_of_a_forward_without_it(small_chunks):
    mlp, x = make_mlp(torch.float32), tokens(dtype=torch.float32)
    out = run_mlp(mlp, x, one_pass=False)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        found = gradients(out, mlp, x, torch.ones_like(out))
    assert_close(found, gradients(mlp(x), mlp, x, torch.ones_like(out)))


def test_chunks_take_tokens_that_do_not_lie_in_order(small_chunks):
    mlp, x = make_mlp(), tokens((5, 2, 4)).transpose(0, 1)
    assert_close(run_mlp(mlp, x, one_pass=False), mlp(x))


def test_hidden_channels_are_not_kept_for_the_backward_pass(monkeypatch):
    def kept_widths():
        widths = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: widths.append(tensor.shape[-1]) or tensor, lambda tensor: tensor
        ):
            run_mlp(layer, x, one_pass=False).sum()
        return widths

    layer, x = MLP(4, 25), torch.randn(3, 7, 4)
    assert kept_widths().count(100) > 1  # the bias of the first linear is one
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 10)
    # As rows, tokens and hidden channels would be (21, 100).
    assert sorted(kept_widths()) == [4, 4, 100, 100]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_chunks_under_autocast_sum_gradients_of_weights_in_float32(small_chunks, dtype):
    # One by one, 600 products of tokens would stop to count in bfloat16.
    mlp, x = make_mlp(torch.float32), tokens((3, 200, 4), torch.float32)
    ones = torch.ones_like(x)
    with torch.autocast('cpu', dtype=dtype):
        out = run_mlp(mlp, x.to(dtype), one_pass=False)
        assert out.dtype == dtype and 'ChunkedMLP' in repr(out.grad_fn.next_functions)
    found = gradients(out, mlp, x, ones.to(dtype))

    expected = gradients(mlp(x), mlp, x, ones)
    for each, exact in zip(found, expected, strict=True):
        assert each.dtype == torch.float32
        assert (each - exact).norm() < 0.01 * exact.norm()


def test_chunks_under_autocast_have_second_derivatives(small_chunks):
    mlp, x = make_mlp(torch.float32), tokens(dtype=torch.float32)

    def penalty(autocast):
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=autocast):
            out = run_mlp(mlp, x.to(torch.bfloat16) if autocast else x, one_pass=False)
        (slope,) = torch.autograd.grad(out.float().square().sum(), x, create_graph=True)
        return gradients(slope.square().sum(), mlp, x, None)

    for found, exact in zip(penalty(True), penalty(False), strict=True):
        assert (found - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_not_summed_over_chunks(small_chunks, dtype):
    mlp, x = make_mlp(dtype), tokens(dtype=dtype)
    out = run_mlp(mlp, x, one_pass=False)
    assert_close(out, mlp(x))
    assert 'ChunkedMLP' not in repr(out.grad_fn.next_functions)


def test_a_large_mlp_runs_in_chunks_by_itself():
    layer = MLP(4, 128).double()
    x = torch.randn(1, 4 * cache.chunk_values(torch.empty(0).double()) // 512 + 1, 4).double()
    out = run_mlp(layer, x, one_pass=False)

    assert_close(out, layer.fc2(F.gelu(layer.fc1(x))))
    assert 'ChunkedMLP' in repr(out.grad_fn.next_functions)


def test_dropout_acts_on_the_output(small_chunks):
    mlp, x = make_mlp(drop_rate=0.5), tokens((3, 50, 4))
    full, dropped = mlp.eval()(x), run_mlp(mlp.train(), x, one_pass=False)
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    assert_close(dropped[kept], 2 * full[kept])
