"""The pre-norm block: its two branches, drop path and checkpointing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from helpers.tiny import gradients, image, randomize
from mminline.layers import MLP, Block, InLineAttention


def make_block(**options):
    return randomize(Block(InLineAttention(8, 2), 8, 2, **options)).double()


def tokens(batch=2):
    return image(batch, 12, 8, dtype=torch.float64)


def test_mlp_is_two_linears_with_the_exact_gelu_between():
    mlp = randomize(MLP(8, 1.5)).double()
    x = tokens()
    hidden = x @ mlp.fc1.weight.T + mlp.fc1.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden * 2**-0.5))
    assert hidden.shape[-1] == 12
    assert_close(mlp(x), hidden @ mlp.fc2.weight.T + mlp.fc2.bias)


def test_mlp_drops_its_output_in_training_alone():
    mlp, x = randomize(MLP(8, 2, drop_rate=0.5)).double(), tokens()
    full, dropped = mlp.eval()(x), mlp.train()(x)
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    assert_close(dropped[kept], 2 * full[kept])


@pytest.mark.parametrize('norm_eps', [1e-5, 1e-2])
def test_block_adds_attention_and_mlp_behind_their_norms(norm_eps):
    block, x = make_block(norm_eps=norm_eps), tokens()
    expected = x
    for norm, branch in (
        (block.norm1, lambda normed: block.attn(normed, (3, 4))),
        (block.norm2, block.mlp),
    ):
        normed = F.layer_norm(expected, (8,), norm.weight, norm.bias, norm_eps)
        expected = expected + branch(normed)
    assert_close(block(x, (3, 4)), expected)


def test_drop_path_skips_a_branch_of_whole_images_and_scales_the_others():
    torch.manual_seed(0)
    block, x = make_block(drop_path_rate=0.4), tokens(batch=500)
    nn.init.zeros_(block.mlp.fc2.weight)
    nn.init.zeros_(block.mlp.fc2.bias)
    branch = block.eval()(x, (3, 4)) - x
    dropped = block.train()(x, (3, 4)) - x
    skipped = (dropped == 0).flatten(1).all(dim=1)
    assert 0.3 < skipped.double().mean() < 0.5
    assert_close(dropped[~skipped], branch[~skipped] / 0.6)


@pytest.mark.parametrize('options', [{}, dict(drop_path_rate=0.5, drop_rate=0.3)])
def test_checkpointing_changes_neither_output_nor_gradients(options):
    results = []
    for with_cp in (False, True):
        block = make_block(with_cp=with_cp, **options).train()
        x = tokens(batch=6).requires_grad_()
        torch.manual_seed(3)
        out = block(x, (3, 4))
        out.backward(tokens(batch=6))
        results.append({'out': out, 'x': x.grad, **gradients(block)})
    assert_close(*results, rtol=0, atol=0)


def test_checkpointing_computes_a_block_twice_in_training_alone():
    block = make_block(with_cp=True)
    calls = []
    block.norm1.register_forward_hook(lambda *_: calls.append(1))
    for mode, expected in ((True, 2), (False, 1)):
        calls.clear()
        block.train(mode)(tokens().requires_grad_(), (3, 4)).sum().backward()
        assert len(calls) == expected
