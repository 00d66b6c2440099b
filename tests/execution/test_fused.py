"""Fused blocks and layers: the same numbers, by fewer passes over memory."""

import pytest
import torch
from torch.profiler import profile
from torch.testing import assert_close

from helpers.autocast import assert_as_exact_as_plain, backward, shifting_block
from helpers.tiny import image, randomize
from mminline import execution
from mminline.execution import cache, decision
from mminline.execution.linear import product, product_gelu
from mminline.layers import Block, InLineAttention, SoftmaxAttention

ONE_PASS = 'mkldnn::_linear_pointwise'
GRID = (6, 9)
needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason='PyTorch without oneDNN'
)
needs_bfloat16 = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason='oneDNN without bfloat16 for this processor',
)


def names_of_operations(function, *inputs):
    with profile() as record:
        function(*inputs)
    return {event.name for event in record.events()}


def make_block(attention=None, **options):
    return randomize(Block(attention or InLineAttention(8, 2), 8, 2, **options))


def tokens(batch=2, dtype=torch.float32):
    return image(batch, 54, 8, dtype=dtype)


def run_fused(block, x, grid=GRID):
    assert execution.choose(block, x, grid).name == 'fused'
    return execution.run(block, x, grid)


@pytest.mark.parametrize(
    'attention',
    [
        dict(),
        dict(local_residual=False),
        dict(feature_map='relu'),
        dict(feature_map='exp', injective=False),
        dict(window_size=4, shifted=True),
    ],
    ids=str,
)
@pytest.mark.parametrize('options', [{}, dict(with_cp=True, drop_path_rate=0.5, drop_rate=0.3)])
def test_training_equals_the_plain_block_in_values_and_gradients(attention, options):
    block = make_block(InLineAttention(8, 2, **attention), **options).double().train()
    x = tokens(batch=6, dtype=torch.float64)
    assert execution.choose(block, x, GRID).name == 'fused'
    fused = backward(lambda x: execution.run(block, x, GRID), block, x)
    assert_close(fused, backward(lambda x: block(x, GRID), block, x))


@needs_bfloat16
@pytest.mark.parametrize(
    'attention',
    [
        InLineAttention(8, 2),
        InLineAttention(8, 2, local_residual=False),
        InLineAttention(8, 2, feature_map='exp', injective=False),
        InLineAttention(8, 2, window_size=4, shifted=True),
        SoftmaxAttention(8, 2, window_size=4),
    ],
    ids=str,
)
@pytest.mark.parametrize('folded', [True, False])
@pytest.mark.parametrize('with_cp', [False, True])
def test_training_under_autocast_is_as_exact_as_the_plain_block(
    attention, folded, with_cp, monkeypatch
):
    monkeypatch.setattr(cache, 'chunk_values', lambda x: 100)
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    block, x = make_block(attention, with_cp=with_cp).train(), tokens(batch=6)
    assert_as_exact_as_plain(run_fused, lambda block, x: block(x, GRID), block, x)


@needs_bfloat16
@pytest.mark.parametrize(('folded', 'local_residual'), [(True, True), (True, False), (False, True)])
def test_errors_under_autocast_do_not_add_up_over_tokens(folded, local_residual, monkeypatch):
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    block = shifting_block(local_residual=local_residual)
    x, grid = image(2, 1600, 32), (40, 40)
    assert_as_exact_as_plain(
        lambda block, x: run_fused(block, x, grid), lambda block, x: block(x, grid), block, x
    )


@needs_bfloat16
def test_training_under_autocast_keeps_less_than_in_float32():
    block, x = make_block(), tokens(batch=6)

    def kept_bytes(autocast):
        kept = {}
        with (
            torch.autocast('cpu', dtype=torch.bfloat16, enabled=autocast),
            torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: kept.update({tensor.data_ptr(): tensor.nbytes}) or tensor,
                lambda tensor: tensor,
            ),
        ):
            out = execution.run(block, x.clone().requires_grad_(), GRID)
        assert out.requires_grad
        return sum(kept.values())

    assert kept_bytes(autocast=True) < 0.8 * kept_bytes(autocast=False)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('folded', [True, False])
@torch.no_grad()
def test_inference_equals_the_plain_layer(dtype, folded):
    layer = randomize(InLineAttention(8, 2)).to(dtype)
    layer.folded = folded
    x = tokens(dtype=dtype)
    assert execution.choose(layer, x, GRID).name == 'fused'
    bounds = {} if dtype.itemsize > 2 else dict(rtol=0.02, atol=0.05)
    assert_close(execution.run(layer, x, GRID), layer(x, GRID), **bounds)


@needs_onednn
@torch.no_grad()
def test_inference_takes_bias_and_gelu_along_where_onednn_can():
    def operations(block, x, streaming=False):
        return names_of_operations(lambda: execution.run(block, x, GRID, streaming))

    block, x = make_block().eval(), tokens()
    assert ONE_PASS in operations(block, x)
    assert ONE_PASS in operations(block, x, streaming=None)
    assert ONE_PASS in operations(make_block(SoftmaxAttention(8, 2)).eval(), x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        for streaming in (False, None):
            names = operations(block, x, streaming)
            assert (ONE_PASS in names) == torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.autocast('cpu', dtype=torch.float16):
        for streaming in (False, None):
            assert ONE_PASS not in operations(block, x, streaming)
    with torch.backends.mkldnn.flags(enabled=False):
        assert ONE_PASS not in operations(block, x)
    with torch.enable_grad():
        assert ONE_PASS not in operations(block, x)
    assert ONE_PASS not in operations(block.double(), x.double())


@needs_onednn
@pytest.mark.parametrize('shape', [(1, 1), (7, 5), (2, 33, 16), (1, 2, 3, 8)])
@torch.no_grad()
def test_products_in_one_pass_equal_those_of_pytorch(shape):
    x, weight, bias = image(*shape), image(3, shape[-1]), image(3)
    for function in (product, product_gelu):
        for some_bias in (bias, None):
            expected = function(x, weight, some_bias, False)
            assert_close(function(x, weight, some_bias, True), expected)


@torch.no_grad()
@pytest.mark.parametrize('has_onednn', [True, False])
def test_bfloat16_is_left_to_pytorch_where_onednn_does_not_know_it(has_onednn, monkeypatch):
    if has_onednn:
        monkeypatch.setattr(decision, '_knows_bfloat16', lambda: False)
    else:  # then nobody can be asked
        monkeypatch.setattr(torch.backends.mkldnn, 'is_available', lambda: False)
        monkeypatch.setattr(decision, '_knows_bfloat16', None)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert not execution.choose(make_block().eval(), tokens(), GRID).one_pass


@torch.no_grad()
def test_a_bias_with_gaps_is_read_as_it_is():
    # As pruning of channels leaves it, and oneDNN would not.
    block, x = make_block().eval(), tokens()
    block.mlp.fc1.bias = torch.nn.Parameter(torch.randn(32)[::2])
    block.attn.proj.bias = torch.nn.Parameter(torch.randn(1).expand(8))
    for streaming in (None, False):
        assert not execution.choose(block, x, GRID, streaming).one_pass
        assert_close(execution.run(block, x, GRID, streaming), block(x, GRID))


def test_weights_without_values_are_refused_as_ever():
    with torch.no_grad(), pytest.raises(RuntimeError, match='meta'):
        execution.run(make_block().to('meta'), tokens(), GRID)
