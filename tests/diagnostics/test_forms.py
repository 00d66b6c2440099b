"""Forms of a block on a device, compared with the reference."""

import pytest
import torch

from mminline import execution
from mminline.diagnostics import check_forms
from mminline.diagnostics.forms import FormResult, run_reference
from mminline.layers import Block, InLineAttention

GRID = (9, 15)  # larger than a window
INLINE = {'not streamed', 'streamed', 'training', 'window', 'class token', 'packed'}


def check() -> dict[tuple[str, torch.dtype], FormResult]:
    results = check_forms('cpu', GRID, with_compile=False, repeats=1)
    return {(result.form, result.dtype): result for result in results}


def test_every_form_agrees_with_the_reference_in_every_precision():
    results = check()

    assert {form for form, _ in results} == INLINE | {'plain', 'softmax window', 'softmax'}
    assert all(result.is_good for result in results.values()), results
    assert results['plain', torch.float32].difference < 1e-5
    assert results['softmax window', torch.float32].difference < 1e-5
    assert results['softmax', torch.float32].difference is None


def test_a_form_that_computes_something_else_is_found(monkeypatch):
    run = execution.run
    monkeypatch.setattr(execution, 'run', lambda *args, **options: run(*args, **options) + 1)

    bad = {form for (form, dtype), result in check().items() if not result.is_good}

    assert bad == INLINE | {'softmax window'}


def test_a_form_that_fails_leaves_the_others_alone(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError('no such kernel\nand more')

    monkeypatch.setattr(execution, 'run', fail)
    results = check()

    assert results['not streamed', torch.float32].error == 'RuntimeError: no such kernel'
    assert results['plain', torch.float32].is_good


def test_a_precision_that_the_device_does_not_have_leaves_the_others_alone(monkeypatch):
    autocast = torch.autocast

    def refuse(device, dtype=None, **options):
        if dtype == torch.bfloat16:
            raise RuntimeError('no bfloat16 here')
        return autocast(device, dtype, **options)

    monkeypatch.setattr(torch, 'autocast', refuse)
    results = check()

    assert {dtype for (_, dtype), result in results.items() if result.is_good} == {
        torch.float32,
        torch.float16,
    }
    assert results['plain', torch.bfloat16].error == 'RuntimeError: no bfloat16 here'


def test_the_reference_is_the_block():
    torch.manual_seed(1)
    block = Block(InLineAttention(8, 2), 8, 2).double()
    x = torch.randn(2, 135, 8, dtype=torch.float64)

    torch.testing.assert_close(run_reference(block, x, GRID), block(x, GRID))


@pytest.mark.parametrize('difference', [1e-3, float('nan')])
def test_a_large_difference_is_no_good(difference):
    assert not FormResult('plain', torch.float32, difference, 1.0).is_good
