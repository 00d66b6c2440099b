"""Blocks in bands of rows: the same result as the ordinary blocks, chosen only for inference."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mminline import execution
from mminline.execution import cache, linear, mlp, streamed
from mminline.layers import Block, InLineAttention, SoftmaxAttention
from mminline.models import InLinePVT, InLineSwin

PVT_ARCH = dict(embed_dims=(8, 16), depths=(2, 1), num_heads=(2, 2), mlp_ratios=(4, 2))
SWIN_ARCH = dict(PVT_ARCH, depths=(2, 4), inline_depths=(2, 2))


@pytest.fixture
def narrow_bands(monkeypatch):
    # A few rows a band, so that even small maps have many.
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 64 * 64 * 8)


def randomise(model):
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


@pytest.mark.parametrize('size', [(32, 32), (33, 97), (135, 61), (128, 128)])
@pytest.mark.parametrize('backbone', [InLinePVT, InLineSwin])
def test_streamed_backbone_equals_the_ordinary_one(backbone, size, narrow_bands):
    torch.manual_seed(0)
    arch = PVT_ARCH if backbone is InLinePVT else SWIN_ARCH
    model = randomise(backbone(arch, out_indices=(0, 1)))
    images = torch.randn(2, 3, *size, dtype=torch.float64)

    ordinary = model(images)
    with torch.inference_mode():
        in_bands = model(images)

    for one, other in zip(in_bands, ordinary, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('hw_shape', [(1, 40), (40, 1), (9, 23)])
@pytest.mark.parametrize('local_residual', [True, False])
def test_streamed_block_works_on_any_grid(hw_shape, local_residual, narrow_bands):
    torch.manual_seed(0)
    block = randomise(Block(InLineAttention(16, 4, local_residual=local_residual), 16, 4))
    x_BLC = torch.randn(3, hw_shape[0] * hw_shape[1], 16, dtype=torch.float64)

    expected = block(x_BLC, hw_shape)
    with torch.no_grad():
        out = streamed.run(block, x_BLC, hw_shape, one_pass=False, dtype=x_BLC.dtype)

    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    'attention',
    [InLineAttention(8, 2), SoftmaxAttention(8, 2), SoftmaxAttention(8, 2, shifted=True)],
)
@pytest.mark.parametrize('hw_shape', [(5, 7), (40, 7), (40, 23)])
@torch.no_grad()
def test_tokens_are_not_overwritten(attention, hw_shape, narrow_bands):
    # A hook of the block before, or whoever called, may still hold them.
    block = randomise(Block(attention, 8, 4))
    x_BLC = torch.randn(2, hw_shape[0] * hw_shape[1], 8, dtype=torch.float64)
    before = x_BLC.clone()
    streamed.run(block, x_BLC, hw_shape, one_pass=False, dtype=x_BLC.dtype)
    assert torch.equal(x_BLC, before)


@torch.no_grad()
def test_an_output_that_a_hook_keeps_stays_what_it_was():
    model = InLinePVT(PVT_ARCH, out_indices=(0, 1)).eval()
    kept = []
    model.stages[0].blocks[0].register_forward_hook(lambda *args: kept.append(args[-1]))
    copies = []
    model.stages[0].blocks[0].register_forward_hook(lambda *args: copies.append(args[-1].clone()))
    model(torch.randn(1, 3, 64, 64))
    assert torch.equal(kept[0], copies[0])


@pytest.mark.parametrize('shifted', [True, False])
@pytest.mark.parametrize('hw_shape', [(3, 5), (7, 30), (8, 8), (29, 16), (28, 14)])
def test_streamed_softmax_block_equals_the_ordinary_one(hw_shape, shifted, narrow_bands):
    torch.manual_seed(0)
    block = randomise(Block(SoftmaxAttention(8, 2, shifted=shifted), 8, 4))
    x_BLC = torch.randn(2, hw_shape[0] * hw_shape[1], 8, dtype=torch.float64)

    expected = block(x_BLC, hw_shape)
    with torch.no_grad():
        out = streamed.run(block, x_BLC, hw_shape, one_pass=False, dtype=x_BLC.dtype)

    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def test_streaming_keeps_its_digits_under_a_large_common_offset(narrow_bands):
    torch.manual_seed(0)
    block = randomise(Block(InLineAttention(16, 2), 16, 4))
    # An offset of the norm's output of 100 times its spread.
    block.norm1.bias.data += 30
    x_BLC = torch.randn(1, 64 * 64, 16, dtype=torch.float64)
    with torch.no_grad():
        expected = block(x_BLC, (64, 64))
        plain = block.float()(x_BLC.float(), (64, 64))
        out = streamed.run(block, x_BLC.float(), (64, 64), one_pass=False, dtype=torch.float32)

    error = (out - expected).abs().max() / expected.std()
    assert error <= 2 * (plain - expected).abs().max() / expected.std()


@pytest.fixture
def counted_streams(monkeypatch):
    calls = []
    stream = streamed.run

    def counting(*args):
        calls.append(args)
        return stream(*args)

    monkeypatch.setattr(streamed, 'run', counting)
    return calls


@torch.no_grad()
def test_inference_on_a_cpu_streams_every_block(counted_streams):
    InLinePVT(PVT_ARCH, out_indices=(0, 1)).eval()(torch.randn(1, 3, 64, 64))
    assert len(counted_streams) == sum(PVT_ARCH['depths'])


@pytest.mark.parametrize('streaming_option', [None, True])
def test_training_does_not_stream(streaming_option, counted_streams):
    model = InLinePVT(PVT_ARCH, out_indices=(0, 1), streaming=streaming_option)
    model(torch.randn(1, 3, 64, 64))
    with torch.no_grad():
        model.train()(torch.randn(1, 3, 64, 64))
    assert not counted_streams


@torch.no_grad()
def test_streaming_is_off_when_switched_off_observed_or_traced(counted_streams):
    image = torch.randn(1, 3, 64, 64)
    InLinePVT(PVT_ARCH, out_indices=(0, 1), streaming=False).eval()(image)
    model = InLinePVT(PVT_ARCH, out_indices=(0, 1)).eval()
    with FlopCounterMode(display=False):
        model(image)
    torch.jit.trace(model, image, check_trace=False)
    for block in (block for stage in model.stages for block in stage.blocks):
        block.attn.proj.register_forward_hook(lambda *_: None)
    model(image)
    assert not counted_streams


@torch.no_grad()
def test_few_tokens_and_other_feature_maps_are_left_to_the_ordinary_block(counted_streams):
    image = torch.randn(1, 3, 64, 64)
    InLinePVT(PVT_ARCH, out_indices=(0, 1), feature_map='relu').eval()(image)
    InLineSwin(dict(SWIN_ARCH, inline_depths=(2, 4)), out_indices=(0, 1), inline_window=7).eval()(
        image
    )
    # Eight by eight tokens of 128 channels: queries and keys are not folded there.
    wide = dict(embed_dims=(128,), depths=(1,), num_heads=(2,), mlp_ratios=(1,))
    InLinePVT(wide, out_indices=(0,)).eval()(torch.randn(1, 3, 32, 32))
    assert not counted_streams


@torch.no_grad()
def test_streaming_follows_autocast():
    torch.manual_seed(0)
    images = torch.randn(1, 3, 64, 96)
    outputs = []
    for option in (None, False):
        torch.manual_seed(1)
        model = InLinePVT(PVT_ARCH, out_indices=(0, 1), streaming=option).eval()
        with torch.autocast('cpu', dtype=torch.bfloat16):
            outputs.append(model(images))
    for in_bands, ordinary in zip(*outputs, strict=True):
        torch.testing.assert_close(in_bands.float(), ordinary.float(), rtol=0.05, atol=0.05)


def knows_bfloat16():
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.mark.parametrize('half', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('one_pass', [True, False])
@pytest.mark.parametrize('hw_shape', [(1, 40), (40, 1), (9, 23), (40, 30)])
@pytest.mark.parametrize(
    'attention',
    [
        InLineAttention(8, 2),
        InLineAttention(8, 2, local_residual=False),
        InLineAttention(8, 2, num_extra_tokens=1),
        SoftmaxAttention(8, 2, shifted=True),
    ],
    ids=['inline', 'no local residual', 'class token', 'softmax'],
)
@torch.no_grad()
def test_bands_in_half_precision_are_as_exact_as_the_ordinary_block(
    attention, hw_shape, one_pass, half, monkeypatch
):
    if one_pass and not (half == torch.bfloat16 and knows_bfloat16()):
        pytest.skip('oneDNN takes bfloat16 alone')
    # Bands of 20 tokens, or of a row that is longer.
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 20 * 32 * half.itemsize)
    torch.manual_seed(0)
    block = randomise(Block(attention, 8, 4))
    num_tokens = hw_shape[0] * hw_shape[1] + getattr(attention, 'num_extra_tokens', 0)
    x_BLC = torch.randn(2, num_tokens, 8)
    exact = block(x_BLC.double(), hw_shape)

    block.float()
    with torch.autocast('cpu', dtype=half):
        ordinary = block(x_BLC, hw_shape)
        out = streamed.run(block, x_BLC, hw_shape, one_pass, half)

    assert out.dtype == torch.float32
    errors = [(each - exact).square().mean().sqrt() for each in (out, ordinary)]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.skipif(not knows_bfloat16(), reason='oneDNN has no products in bfloat16 here')
@pytest.mark.parametrize('attention', [InLineAttention(8, 2), SoftmaxAttention(8, 2)])
@torch.no_grad()
def test_all_products_of_bands_run_in_the_type_of_autocast(attention, narrow_bands, monkeypatch):
    block, x_BLC, hw_shape = Block(attention, 8, 4).eval(), torch.randn(1, 40 * 30, 8), (40, 30)
    seen, norms = set(), []
    for module in (streamed, linear, mlp):
        for name in ('product', 'product_gelu'):
            if hasattr(module, name):
                function = getattr(module, name)

                def watch(x, *args, function=function):
                    seen.add(x.dtype)
                    return function(x, *args)

                monkeypatch.setattr(module, name, watch)
    for norm in (block.norm1, block.norm2):
        norm.register_forward_hook(lambda *args: norms.append(args[-1].shape[-2]))

    with torch.autocast('cpu', dtype=torch.bfloat16):
        streamed.run(block, x_BLC, hw_shape, True, torch.bfloat16)

    assert seen == {torch.bfloat16}
    if isinstance(attention, InLineAttention):
        assert sum(norms) == 2 * 40 * 30  # each norm sees each token once


@torch.no_grad()
def test_float64_stays_what_it_is_under_autocast(narrow_bands):
    torch.manual_seed(0)
    block = randomise(Block(InLineAttention(8, 2), 8, 4))
    x_BLC = torch.randn(1, 9 * 23, 8, dtype=torch.float64)
    expected = block(x_BLC, (9, 23))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = execution.run(block, x_BLC, (9, 23))
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def test_band_size_can_be_set_from_outside(monkeypatch):
    band_bytes = cache.band_bytes.__wrapped__
    monkeypatch.setenv(cache.VARIABLE, '12345')
    assert band_bytes() == band_bytes('cuda') == 12345
    monkeypatch.setenv(cache.VARIABLE, '8M')
    with pytest.raises(ValueError, match="MMINLINE_BAND_BYTES has to be .*got '8M'"):
        band_bytes()
    monkeypatch.delenv(cache.VARIABLE)
    assert 0 < band_bytes() < band_bytes('cuda')


@torch.no_grad()
def test_a_window_as_large_as_the_map_streams_too(counted_streams):
    arch = dict(SWIN_ARCH, inline_depths=(2, 4))
    InLineSwin(arch, out_indices=(0, 1), inline_window=16).eval()(torch.randn(1, 3, 64, 64))
    assert len(counted_streams) == sum(arch['depths'])
