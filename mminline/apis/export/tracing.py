"""Graphs of modules by ``torch.export``, for one size of image or for all."""

import contextlib
import copy
import logging
import re
import warnings
from collections.abc import Iterator

import torch
import torch.fx.experimental._config
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._sympy.value_ranges import ValueRanges

from .open_sizes import open_sizes

SMALLEST = 32
OPEN_DIMS = {0: 'batch', 2: 'height', 3: 'width'}


def trace(module: nn.Module, shape: tuple[int, int], dynamic: bool) -> ExportedProgram:
    """Turn a module into one graph, for one image of a shape or with its ``open_dims`` open."""
    module = copy.deepcopy(module)
    open_sizes(module)
    sizes = dict.fromkeys(module.open_dims, Dim.DYNAMIC) if dynamic else None
    # Sizes of 1 would otherwise get graphs of their own.
    oblivious = torch.fx.experimental._config.patch(backed_size_oblivious=dynamic)
    with torch.no_grad(), oblivious, quiet():
        program = torch.export.export(
            module, (example(module, shape, dynamic),), dynamic_shapes=(sizes,), strict=False
        )
    program.example_inputs = None  # would be saved, and is larger than a small model
    if dynamic:
        drop_layout_guards(program)
    return program


def example(module: nn.Module, shape: tuple[int, int], dynamic: bool) -> Tensor:
    """Make the image to trace with; only its shape matters.

    Open sizes are traced at two windows a side of the coarsest map, because the tracer takes a
    size of 1 for a special case.
    """
    if not dynamic:
        return torch.zeros(1, module.in_channels, *shape)
    windows = [getattr(part, 'window_size', None) for part in module.backbone.modules()]
    window = max([7, *(size for size in windows if isinstance(size, int))])
    height, width = (SMALLEST * (2 * window + extra) for extra in (1, 3))
    if 0 in module.open_dims:
        return torch.empty(2, module.in_channels, height, width)
    # No multiples of 32, which would need no padding.
    return torch.empty(1, module.in_channels, height - 3, width - 5)


def drop_layout_guards(program: ExportedProgram) -> None:
    """Let a graph of open sizes run at all of them.

    The tracer notes conditions on memory layout for maps with a side of 1, on which no result
    depends; the comparison that follows includes such maps. A size that has to be one number is
    another matter: there the model left the graph.
    """
    if fixed := [guard for guard in program._guards_code if re.search(r' == \d+$', guard)]:
        raise ValueError(
            'the model fixes a size that dynamic wants open, so only one shape can be exported: '
            f'{fixed[0]}'
        )
    program._guards_code = []
    for symbol, sizes in program._range_constraints.items():
        lower = min(sizes.lower, SMALLEST)
        program._range_constraints[symbol] = ValueRanges(lower, sizes.upper)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the remarks of the exporters."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(level)
