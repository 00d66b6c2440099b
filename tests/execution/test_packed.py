"""Packed blocks: images of several sizes at once, each as if it were alone."""

import pytest
import torch
from torch.testing import assert_close

from helpers.tiny import build, gradients, image, randomize, weighted_sum
from mminline import execution
from mminline.execution import Group, pack, packed, unpack
from mminline.layers import Block, InLineAttention, SoftmaxAttention
from mminline.models import InLinePVT

# The second is too small to be folded, and for windows of 4.
GROUPS = [Group(2, (6, 9)), Group(1, (3, 4)), Group(3, (8, 7))]
ATTENTION = {
    'folded': dict(),
    'not folded': dict(feature_map='relu'),
    'linear': dict(feature_map='exp', injective=False),
    'without the 3x3 step': dict(local_residual=False),
    'windows': dict(window_size=4, shifted=True),
}


def make_block(attention=None, **options):
    return randomize(Block(attention or InLineAttention(8, 2), 8, 2, **options)).double().train()


def packed_tokens():
    return image(1, sum(group.num_tokens for group in GROUPS), 8, dtype=torch.float64)


def run_each(block, x):
    parts = unpack(x, GROUPS)
    return pack([block(part, group.hw_shape) for part, group in zip(parts, GROUPS, strict=True)])


def backward(run, block):
    block.zero_grad()
    x = packed_tokens().requires_grad_()
    out = run(block, x)
    weighted_sum([out]).backward()
    return {'out': out, 'x': x.grad, **gradients(block)}


def run_packed(block, x):
    return execution.run_packed(block, x, GROUPS)


@pytest.fixture
def calls(monkeypatch):
    """Runs of the packed form."""
    runs, run = [], packed.run
    monkeypatch.setattr(packed, 'run', lambda *args: runs.append(args) or run(*args))
    return runs


def test_unpacked_tokens_are_those_that_were_packed_and_no_copy():
    x = packed_tokens()
    parts = unpack(x, GROUPS)

    assert [tuple(part.shape) for part in parts] == [(2, 54, 8), (1, 12, 8), (3, 56, 8)]
    assert parts[2].data_ptr() == x[:, 120:].data_ptr()
    assert_close(pack(parts), x, rtol=0, atol=0)


@pytest.mark.parametrize('with_cp', [False, True])
@pytest.mark.parametrize('options', ATTENTION.values(), ids=ATTENTION)
def test_values_and_gradients_are_those_of_each_group_alone(options, with_cp, calls):
    block = make_block(InLineAttention(8, 2, **options), with_cp=with_cp)

    assert_close(backward(run_packed, block), backward(run_each, block))
    assert len(calls) == 1


def test_other_attention_runs_group_by_group_between_packed_parts(calls):
    block = make_block(SoftmaxAttention(8, 2, window_size=4))

    assert_close(backward(run_packed, block), backward(run_each, block))
    assert len(calls) == 1


@pytest.mark.parametrize('reason', ['hook', 'plain'])
def test_blocks_that_the_fused_form_does_not_fit_run_group_by_group(reason, calls, monkeypatch):
    block = make_block()
    expected = backward(run_each, block)
    seen = []
    if reason == 'hook':
        block.attn.register_forward_hook(lambda *args: seen.append(args))
    else:
        monkeypatch.setenv('MMINLINE_EXECUTION', 'plain')

    assert_close(backward(run_packed, block), expected)
    assert not calls and len(seen) == (3 if reason == 'hook' else 0)


def test_drop_path_skips_a_branch_for_whole_images():
    block = make_block(drop_path_rate=0.5)
    torch.manual_seed(0)
    parts = unpack(packed._drop_path(block, packed_tokens(), GROUPS), GROUPS)
    zeros = [(part == 0).flatten(1) for part in parts]
    skipped = torch.cat([part.all(dim=1) for part in zeros])

    assert torch.equal(skipped, torch.cat([part.any(dim=1) for part in zeros]))
    assert skipped.any() and not skipped.all()


def test_a_backbone_packs_in_training_unless_somebody_watches_its_stages(calls):
    model = build(InLinePVT)
    batch = image(2, 3, 64, 96)
    batch[1, :, 40:] = 0
    depth = sum(len(stage.blocks) for stage in model.stages)
    expected = model(batch)
    assert len(calls) == depth
    with torch.no_grad():
        assert_close(model(batch), expected, rtol=1e-4, atol=1e-4)
    shapes = []
    model.stages[0].register_forward_hook(lambda *args: shapes.append(args[2][1]))
    assert_close(model(batch), expected, rtol=1e-4, atol=1e-4)

    assert len(calls) == depth
    assert shapes == [(16, 24), (10, 24)]
