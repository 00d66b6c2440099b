"""Packed blocks: images of several sizes at once, each as if it were alone."""

import pytest
import torch
from torch.testing import assert_close

from helpers.autocast import assert_as_exact_as_plain, shifting_block
from helpers.tiny import build, gradients, image, randomize, weighted_sum
from mminline import execution
from mminline.execution import Group, from_grids, groups, pack, packed, to_grids, unpack
from mminline.execution.groups import _number_covered
from mminline.layers import Block, InLineAttention, SoftmaxAttention
from mminline.models import InLinePVT
from mminline.models.backbones import pyramid_backbone

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


@pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason='oneDNN without bfloat16 for this processor',
)
@pytest.mark.parametrize('folded', [True, False])
def test_errors_under_autocast_do_not_add_up_over_tokens(folded, calls, monkeypatch):
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    groups = [Group(1, (40, 40)), Group(1, (36, 40))]
    block = shifting_block()
    x = image(1, sum(group.num_tokens for group in groups), 32)

    def run_each(block, x):
        parts = zip(unpack(x, groups), groups, strict=True)
        return pack([block(part, group.hw_shape) for part, group in parts])

    assert_as_exact_as_plain(
        lambda block, x: execution.run_packed(block, x, groups), run_each, block, x
    )
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


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_drop_path_rounds_values_and_not_their_factor_in_half_precision(dtype):
    # A factor in half precision would be off by up to 0.4 %, alike for all values.
    block, x = make_block(drop_path_rate=0.3), packed_tokens().to(dtype)
    torch.manual_seed(0)
    dropped = packed._drop_path(block, x, GROUPS)
    scaled = (x.float() * (1 / torch.tensor(0.7))).to(dtype)
    is_kept = dropped != 0

    assert dropped.dtype == dtype and is_kept.any() and not is_kept.all()
    assert torch.equal(dropped[is_kept], scaled[is_kept])
    assert not torch.equal(scaled, x * (1 / torch.tensor(0.7)).to(dtype))  # so it could fail


def test_the_blocks_of_a_stage_share_one_mask(monkeypatch):
    block = make_block(InLineAttention(8, 2, feature_map='relu'))
    groups.mark_covered.cache_clear()
    found, find = [], groups.find_covered
    monkeypatch.setattr(groups, 'find_covered', lambda *args: found.append(args) or find(*args))
    with torch.inference_mode():
        run_packed(block, packed_tokens())
    for _ in range(2):
        assert_close(backward(run_packed, block), backward(run_each, block))

    # One for the mask, and one for the numbers of the cells if these were not known.
    assert len(found) <= 2


def test_grids_hold_packed_tokens_and_zeros_around_them():
    x = packed_tokens()
    grids = to_grids(x, GROUPS, (9, 10))

    assert grids.shape == (6, 9, 10, 8)
    assert grids.count_nonzero() == x.count_nonzero() == x.numel()
    assert_close(from_grids(grids, GROUPS), x, rtol=0, atol=0)
    first, second, _ = unpack(x, GROUPS)
    assert_close(grids[1, :6, :9].flatten(0, 1), first[1], rtol=0, atol=0)
    assert_close(grids[2, :3, :4].flatten(0, 1), second[0], rtol=0, atol=0)


def test_the_way_into_grids_and_back_has_derivatives_of_any_order():
    groups = [Group(1, (2, 1)), Group(2, (1, 3))]
    x = image(1, 8, 2, dtype=torch.float64).requires_grad_()

    def there(x):
        return to_grids(x, groups, (3, 3)) ** 3

    def back(x):
        return from_grids(to_grids(x, groups, (3, 3)) + 1, groups) ** 3

    for function in (there, back):
        assert torch.autograd.gradcheck(function, x)
        assert torch.autograd.gradgradcheck(function, x)


@pytest.fixture
def model_and_batch():
    batch = image(2, 3, 64, 96)
    batch[1, :, 40:] = 0
    return build(InLinePVT), batch


def test_a_backbone_packs_in_training_and_small_images_in_inference(
    model_and_batch, calls, monkeypatch
):
    model, batch = model_and_batch
    depth = sum(len(stage.blocks) for stage in model.stages)
    expected = model(batch)
    assert len(calls) == depth
    model.eval()
    for small, count in ((64 * 96 + 40 * 96, 2 * depth), (64 * 96 + 40 * 96 - 1, 2 * depth)):
        monkeypatch.setattr(pyramid_backbone, 'SMALL', small)
        with torch.no_grad():
            assert_close(model(batch), expected, rtol=1e-4, atol=1e-4)
        assert len(calls) == count


def test_indices_that_inference_made_serve_training(model_and_batch):
    model, batch = model_and_batch
    _number_covered.cache_clear()
    with torch.inference_mode():
        expected = model(batch)
    maps = model(batch)
    weighted_sum(maps).backward()

    assert_close(maps, tuple(part.clone() for part in expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('part', ['stages.0', 'stages.0.embed', 'stages.0.embed.proj'])
def test_stages_and_embeddings_that_somebody_watches_are_called_size_by_size(
    part, model_and_batch, calls
):
    model, batch = model_and_batch
    expected = model(batch)
    calls.clear()
    heights = []
    model.get_submodule(part).register_forward_hook(
        lambda module, inputs, output: heights.append(inputs[0].shape[2])
    )

    assert_close(model(batch), expected, rtol=1e-4, atol=1e-4)
    assert not calls and heights == [64, 40]
