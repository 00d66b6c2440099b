"""3x3 convolutions by Winograd's algorithm: values, layouts, and independence of the cut."""

import pytest
import torch
import torch.nn.functional as F

from mminline.execution import cache, winograd


def random_conv(*shape: int, out: int = 72) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(shape), torch.randn(out, shape[1], 3, 3), torch.randn(out)


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('padding', [0, 1])
@pytest.mark.parametrize(
    'shape', [(1, 64, 41, 53), (2, 64, 50, 37), (30, 64, 14, 14), (1, 8, 3, 3), (3, 5, 4, 200)]
)
@torch.no_grad()
def test_outputs_are_those_of_the_convolution(shape, padding, bias):
    x, weight, offset = random_conv(*shape)
    offset = offset if bias else None

    found = winograd.convolve(x, weight, offset, padding)

    expected = F.conv2d(
        x.double(), weight.double(), offset.double() if bias else None, padding=padding
    )
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@torch.no_grad()
def test_the_matrices_are_exact():
    # A window of one and a kernel of one at each place: the matrices alone, without rounding.
    windows = torch.eye(36, dtype=torch.float64).view(36, 1, 6, 6)
    kernels = torch.eye(9, dtype=torch.float64).view(9, 1, 3, 3)
    from_window, from_kernel, to_outputs = (
        matrix.double()
        for matrix in (winograd.FROM_WINDOW, winograd.FROM_KERNEL, winograd.TO_OUTPUTS)
    )

    products = (from_window @ windows.view(36, 36).T)[:, :, None] * (
        from_kernel @ kernels.view(9, 9).T
    )[:, None]
    found = torch.einsum('yp,pxk->xky', to_outputs, products).view(36, 9, 4, 4)

    torch.testing.assert_close(found, F.conv2d(windows, kernels), atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_result_has_the_memory_format_of_the_maps():
    x, weight, bias = random_conv(2, 64, 21, 34)
    ordered = x.contiguous(memory_format=torch.channels_last)

    found, found_ordered = (winograd.convolve(each, weight, bias, 1) for each in (x, ordered))

    assert found.is_contiguous()
    assert found_ordered.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, found_ordered)


@pytest.mark.parametrize('threads', [1, 2])
@torch.no_grad()
def test_a_result_does_not_depend_on_the_bands(threads, monkeypatch):
    x, weight, bias = random_conv(2, 64, 45, 70)
    whole = winograd.convolve(x, weight, bias, 1)
    monkeypatch.setattr(winograd, 'count_band_threads', lambda device: threads)

    for tiles in (1, 33, 100):
        monkeypatch.setattr(cache, 'band_bytes', lambda tiles=tiles: tiles * 4 * 36 * 72)
        assert torch.equal(winograd.convolve(x, weight, bias, 1), whole)


@torch.no_grad()
def test_a_result_does_not_depend_on_the_part_of_the_map():
    # A part that begins at the edge of a tile has the same tiles, so it rounds alike.
    x, weight, bias = random_conv(1, 64, 48, 60)
    whole = winograd.convolve(x, weight, bias, 1)

    part = winograd.convolve(x[:, :, 8:30, 4:41], weight, bias, 1)

    assert torch.equal(part[:, :, 4:-4, 4:-4], whole[:, :, 12:26, 8:37])


@torch.no_grad()
def test_all_tiles_are_in_one_band():
    for grid, most in (((1, 50, 80), 227), ((2, 3, 300), 64), ((100, 4, 4), 227), ((1, 1, 1), 32)):
        bands = winograd._cut(grid, most, 2)
        covered = torch.zeros(grid, dtype=torch.int)
        for band in bands:
            assert band.num_tiles <= most
            images, rows, columns = (slice(part.start, part.stop) for part in band)
            covered[images, rows, columns] += 1
        assert (covered == 1).all()


@torch.no_grad()
def test_another_default_type_changes_nothing():
    x, weight, bias = random_conv(1, 64, 21, 34)
    expected = winograd.convolve(x, weight, bias, 1)
    torch.set_default_dtype(torch.float64)
    try:
        found = winograd.convolve(x, weight, bias, 1)
    finally:
        torch.set_default_dtype(torch.float32)

    assert torch.equal(found, expected)
