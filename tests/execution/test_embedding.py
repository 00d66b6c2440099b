"""Embeddings in bands of rows: the tokens of the ordinary way, in inference on a CPU only."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from helpers.tiny import image, randomize
from mminline import execution
from mminline.execution import cache, embedding, threads
from mminline.layers import PatchEmbed, PatchMerging
from mminline.models import InLinePVT, InLineSwin

ARCH = dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(2, 2), mlp_ratios=(4, 2))
EMBEDDINGS = {
    'patch 4': lambda: PatchEmbed(6, 10, patch_size=4),
    'patch 2 without norm': lambda: PatchEmbed(6, 10, patch_size=2, norm=False),
    'merging': lambda: PatchMerging(6, 10),
}


@pytest.fixture
def bands(monkeypatch) -> list[range]:
    """Bands of few rows on three threads; the list is filled with those that have run."""
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 2000)
    monkeypatch.setattr(embedding, 'FEWEST_VALUES', 1)
    monkeypatch.setattr(embedding, 'count_band_threads', lambda device: 3)
    done = []

    def note(function, bands, num_threads):
        done.extend(bands)
        return threads.map_bands(function, bands, num_threads)

    monkeypatch.setattr(embedding, 'map_bands', note)
    return done


@pytest.mark.parametrize('kind', EMBEDDINGS)
@pytest.mark.parametrize('size', [(96, 60), (97, 33), (33, 97), (2, 40)])
@pytest.mark.parametrize('with_position', [True, False])
def test_bands_equal_the_whole(kind, size, with_position, bands):
    embed = randomize(EMBEDDINGS[kind]()).double().eval()
    map_BCHW = image(2, 6, *size, dtype=torch.float64)
    position = image(1, 5, 7, 10, dtype=torch.float64) if with_position else None

    expected, hw_shape = execution.embed(embed, map_BCHW, position)
    assert not bands
    with torch.inference_mode():
        tokens, shape = execution.embed(embed, map_BCHW, position)

    assert [row for band in bands for row in band] == list(range(hw_shape[0]))
    assert len(bands) > 1 or hw_shape[0] == 1
    assert shape == hw_shape
    assert_close(tokens, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('num_threads', [1, 2])
def test_in_float32_bands_have_the_bits_of_the_whole(num_threads, bands, monkeypatch, set_threads):
    # Parts of large images and slabs are cut elsewhere.
    monkeypatch.setattr(embedding, 'FEWEST_VALUES', 2**16)
    set_threads(num_threads)
    embed = randomize(PatchEmbed(16, 32, patch_size=2)).eval()
    map_BCHW = image(1, 16, 200, 300).contiguous(memory_format=torch.channels_last)
    position = image(1, 7, 7, 32)

    with torch.no_grad():
        whole, _ = execution.embed(embed, map_BCHW, position, streaming=False)
        assert not bands
        tokens, _ = execution.embed(embed, map_BCHW, position)

    assert len(bands) > 3
    assert torch.equal(tokens, whole)


def test_small_parts_are_not_cut_off_because_they_round_differently(bands, monkeypatch):
    monkeypatch.setattr(embedding, 'FEWEST_VALUES', 2**16)
    with torch.no_grad():
        execution.embed(PatchMerging(6, 10), image(1, 6, 100, 100))
        assert bands == [range(50)]
        bands.clear()
        execution.embed(PatchMerging(6, 10), image(1, 6, 200, 200))
    assert [len(band) for band in bands] == [33, 33, 34]


def hooked(embed, monkeypatch):
    embed.norm.register_forward_hook(lambda *_: None)


def patched(embed, monkeypatch):
    embed.forward = embed.forward


def patched_class(embed, monkeypatch):
    forward = PatchEmbed.forward
    monkeypatch.setattr(PatchEmbed, 'forward', lambda *args: forward(*args))


def overlapping(embed, monkeypatch):
    embed.proj = nn.Conv2d(6, 10, 3, stride=2, padding=1)


def padded(embed, monkeypatch):
    embed.proj = nn.Conv2d(6, 10, 2, stride=2, padding=1)


def larger(embed, monkeypatch):
    embed.proj = nn.Conv2d(6, 10, 4, stride=4)


def dilated(embed, monkeypatch):
    embed.proj = nn.Conv2d(6, 10, 2, stride=2, dilation=2)


@pytest.mark.parametrize(
    'change', [hooked, patched, patched_class, overlapping, padded, larger, dilated]
)
def test_what_is_not_as_it_was_built_is_called_once(change, bands, monkeypatch):
    embed = PatchEmbed(6, 10, patch_size=2).eval()
    with torch.no_grad():
        execution.embed(embed, image(1, 6, 64, 64))
        assert bands
        bands.clear()
        change(embed, monkeypatch)
        execution.embed(embed, image(1, 6, 64, 64))
    assert not bands


def test_an_embedding_may_get_another_number_of_channels(bands):
    embed = PatchEmbed(6, 10, patch_size=2).eval()
    embed.proj, embed.norm = nn.Conv2d(6, 12, 2, stride=2), nn.LayerNorm(12)
    with torch.no_grad():
        tokens, _ = execution.embed(embed, image(1, 6, 64, 64))
    assert bands
    assert tokens.shape == (1, 1024, 12)


def test_bands_are_for_inference_that_nobody_watches(bands, monkeypatch):
    embed, map_BCHW = PatchEmbed(6, 10, patch_size=2).eval(), image(1, 6, 64, 64)

    execution.embed(embed, map_BCHW)  # with gradients
    with torch.no_grad():
        execution.embed(embed, map_BCHW, streaming=False)
        execution.embed(copy.deepcopy(embed).to('meta'), map_BCHW.to('meta'))
        with FlopCounterMode(display=False):
            execution.embed(embed, map_BCHW)
        monkeypatch.setenv('MMINLINE_EXECUTION', 'plain')
        execution.embed(embed, map_BCHW)

    assert not bands


@pytest.mark.parametrize('backbone', [InLinePVT, InLineSwin])
@pytest.mark.parametrize('train', [True, False])
def test_under_autocast_blocks_add_to_tokens_in_float32(backbone, train, monkeypatch):
    # A sum in half precision loses the digits of what each block adds, and fast forms need float32.
    options = {} if backbone is InLinePVT else dict(inline_depths=(1, 0))
    model = backbone(dict(ARCH, **options), out_indices=(0, 1)).train(train)
    dtypes = []
    run = execution.run

    def note(block, x_BLC, *arguments):
        dtypes.append(x_BLC.dtype)
        return run(block, x_BLC, *arguments)

    monkeypatch.setattr(execution, 'run', note)
    with torch.autocast('cpu', torch.bfloat16), torch.set_grad_enabled(train):
        outputs = model(image(2, 3, 64, 64))

    assert dtypes == [torch.float32] * 2
    assert [output.dtype for output in outputs] == [torch.float32] * 2


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float32])
@pytest.mark.parametrize('with_position', [True, False])
@torch.no_grad()
def test_under_autocast_tokens_have_the_type_of_the_weights(with_position, dtype):
    # The norms of a model in half precision take tokens in half precision.
    embed = PatchEmbed(3, 8, patch_size=4).to(dtype)
    position = image(1, 7, 7, 8).to(dtype) if with_position else None
    with torch.autocast('cpu', torch.bfloat16):
        for image_dtype in (torch.bfloat16, torch.float32):
            map_BCHW = image(1, 3, 64, 64).to(image_dtype)
            for streaming in (None, False):
                tokens, _ = execution.embed(embed, map_BCHW, position, streaming=streaming)
                assert tokens.dtype == dtype


@pytest.mark.parametrize('backbone', [InLinePVT, InLineSwin])
def test_models_in_half_precision_run_under_autocast(backbone):
    options = {} if backbone is InLinePVT else dict(inline_depths=(1, 0))
    model = backbone(dict(ARCH, **options), out_indices=(0, 1)).bfloat16().eval()
    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
        outputs = model(image(1, 3, 64, 64).bfloat16())
    assert all(output.isfinite().all() for output in outputs)
