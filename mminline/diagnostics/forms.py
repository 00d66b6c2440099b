"""Every form in which a block runs, on one device, compared with explicit weights in float64."""

import contextlib
import copy
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .. import execution
from ..layers import Block, InLineAttention, SoftmaxAttention

CHANNELS, HEADS, MLP_RATIO = 64, 2, 4
# Largest difference that rounding explains, relative to the standard deviation of the output.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
WINDOW = 7
# Layers that run otherwise than attention over a whole map.
LAYERS = {
    'window': lambda: InLineAttention(CHANNELS, HEADS, window_size=WINDOW, shifted=True),
    'softmax window': lambda: SoftmaxAttention(CHANNELS, HEADS, window_size=WINDOW, shifted=True),
    'class token': lambda: InLineAttention(CHANNELS, HEADS, num_extra_tokens=1),
}


class FormResult(NamedTuple):
    """Outcome of one form in one precision.

    Attributes:
        form: Name of the form or of the layer, or 'softmax' for the same block with softmax
            attention over the whole map.
        dtype: Precision, of autocast for half precision.
        difference: Largest difference to the reference, relative to its standard deviation; None
            for softmax, which computes something else, and for a failure.
        milliseconds: Median time; None for a failure.
        error: Why the form failed; None if it ran.
    """

    form: str
    dtype: torch.dtype
    difference: float | None
    milliseconds: float | None
    error: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether the form ran, and its result is right up to rounding."""
        if self.error is not None:
            return False
        return self.difference is None or self.difference <= TOLERANCES[self.dtype]


class _Case(NamedTuple):
    """Something to run: name, function, its input, and its output by the reference."""

    form: str
    run: Callable[[Tensor], Tensor]
    x_BLC: Tensor
    expected_BLC: Tensor | None


def check_forms(
    device: str | torch.device,
    hw_shape: tuple[int, int] = (48, 64),
    with_compile: bool = True,
    repeats: int = 5,
) -> Iterator[FormResult]:
    """Run a block in every form and precision; yield each outcome as soon as it is there.

    Args:
        device: Where to run.
        hw_shape: Height and width of the grid of tokens.
        with_compile: Whether to include ``torch.compile``, which takes a minute.
        repeats: Runs that are timed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        cases = [
            *_cases_of_forms(device, hw_shape, with_compile),
            *_cases_of_layers(device, hw_shape),
            _case_of_packed(device, hw_shape),
            _case_of_softmax(device, hw_shape),
        ]
    for dtype in TOLERANCES:
        for form, run, x_BLC, expected_BLC in cases:
            yield _measure(form, run, x_BLC.to(device), dtype, expected_BLC, repeats)


def _cases_of_forms(
    device: str | torch.device, hw_shape: tuple[int, int], with_compile: bool
) -> Iterator[_Case]:
    """One block in each of its forms."""
    block, x_BLC = _make_block(InLineAttention(CHANNELS, HEADS)), _make_tokens(hw_shape)
    expected_BLC = run_reference(block, x_BLC, hw_shape)
    for form, run in _forms(block.to(device), hw_shape, with_compile).items():
        yield _Case(form, run, x_BLC, expected_BLC)


def _cases_of_layers(device: str | torch.device, hw_shape: tuple[int, int]) -> Iterator[_Case]:
    """Windows and class tokens, in the form that is chosen for them."""
    for form, make_layer in LAYERS.items():
        block = _make_block(make_layer())
        x_BLC = _make_tokens(hw_shape, getattr(block.attn, 'num_extra_tokens', 0))
        expected_BLC = run_reference(block, x_BLC, hw_shape)
        run = functools.partial(execution.run, block.to(device), hw_shape=hw_shape)
        yield _Case(form, run, x_BLC, expected_BLC)


def _case_of_packed(device: str | torch.device, hw_shape: tuple[int, int]) -> _Case:
    """Images of two sizes at once."""
    block = _make_block(InLineAttention(CHANNELS, HEADS))
    groups = [execution.Group(2, hw_shape), execution.Group(1, (hw_shape[1], hw_shape[0] // 2))]
    parts = [_make_tokens(group.hw_shape)[: group.batch] for group in groups]
    expected = [
        run_reference(block, part_BLC, group.hw_shape)
        for part_BLC, group in zip(parts, groups, strict=True)
    ]
    run = functools.partial(execution.run_packed, block.to(device), groups=groups)
    return _Case('packed', run, execution.pack(parts), execution.pack(expected))


def _case_of_softmax(device: str | torch.device, hw_shape: tuple[int, int]) -> _Case:
    """The same block with softmax attention, for its time."""
    block = _make_block(SoftmaxAttention(CHANNELS, HEADS, window_size=None)).to(device)
    return _Case('softmax', lambda x_BLC: block(x_BLC, hw_shape), _make_tokens(hw_shape), None)


def _make_block(layer: nn.Module) -> Block:
    return Block(layer, CHANNELS, MLP_RATIO).eval()


def _make_tokens(hw_shape: tuple[int, int], num_extra_tokens: int = 0) -> Tensor:
    return torch.randn(2, num_extra_tokens + hw_shape[0] * hw_shape[1], CHANNELS)


@torch.no_grad()
def run_reference(block: Block, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Run a block with the explicit weights of its attention, in float64 on the CPU."""
    block, x_BLC = copy.deepcopy(block).cpu().double(), x_BLC.cpu().double()
    attention = block.attn.attention_weights(block.norm1(x_BLC), hw_shape)
    x_BLC = x_BLC + attention.finish(attention.mix())
    return x_BLC + block.mlp(block.norm2(x_BLC))


def _forms(
    block: nn.Module, hw_shape: tuple[int, int], with_compile: bool
) -> dict[str, Callable[[Tensor], Tensor]]:
    forms = {
        'plain': lambda x_BLC: block(x_BLC, hw_shape),
        # Under autocast, blocks that do not stream run plainly.
        'not streamed': lambda x_BLC: execution.run(block, x_BLC, hw_shape, streaming=False),
        'streamed': lambda x_BLC: execution.run(block, x_BLC, hw_shape, streaming=True),
        'training': lambda x_BLC: _run_training(block, x_BLC, hw_shape),
    }
    if with_compile:
        forms['compiled'] = torch.compile(lambda x_BLC: execution.run(block, x_BLC, hw_shape))
    return forms


def _run_training(block: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Forward and backward pass; the gradients have to be finite."""
    with torch.enable_grad():
        out_BLC = execution.run(block, x_BLC.clone().requires_grad_(), hw_shape)
        out_BLC.float().square().mean().backward()
    if not all(parameter.grad.isfinite().all() for parameter in block.parameters()):
        raise FloatingPointError('a gradient is not finite')
    block.zero_grad()
    return out_BLC.detach()


@torch.no_grad()
def _measure(
    name: str,
    run: Callable[[Tensor], Tensor],
    x_BLC: Tensor,
    dtype: torch.dtype,
    expected_BLC: Tensor | None,
    repeats: int,
) -> FormResult:
    is_half = dtype != torch.float32
    device = x_BLC.device.type
    try:
        with torch.autocast(device, dtype) if is_half else contextlib.nullcontext():
            out_BLC = run(x_BLC)
            milliseconds = _time(lambda: run(x_BLC), device, repeats)
    except Exception as error:  # the other forms have to be tried all the same
        reason = (str(error).splitlines() or [''])[0]
        return FormResult(name, dtype, None, None, f'{type(error).__name__}: {reason}')
    difference = None
    if expected_BLC is not None:
        error_BLC = (out_BLC.cpu().double() - expected_BLC).abs()
        difference = (error_BLC.max() / expected_BLC.std()).item()
    return FormResult(name, dtype, difference, milliseconds)


def _time(run: Callable[[], object], device: str, repeats: int) -> float:
    """Median time of a call in milliseconds."""
    synchronize = getattr(getattr(torch, device, None), 'synchronize', lambda: None)
    times = []
    for _ in range(repeats):
        synchronize()
        begin = time.perf_counter()
        run()
        synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)
