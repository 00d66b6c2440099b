"""How ``export.py`` makes a graph and a file of a module, and compares it with PyTorch."""

import contextlib
import copy
import importlib.util
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.fx.experimental._config
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._sympy.value_ranges import ValueRanges

from _exported import open_sizes

SMALLEST = 32
OPEN_DIMS = {0: 'batch', 2: 'height', 3: 'width'}
# Of the largest value for features; of the pixels for a class map, where ties may fall either way.
LARGEST_ERROR = 1e-3
PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')


def check_packages() -> None:
    """End the program if what ONNX needs is not installed."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        sys.exit(f'ONNX needs {", ".join(missing)}: pip install "mminline[export]".')


def example(module: nn.Module, shape: tuple[int, int], dynamic: bool) -> Tensor:
    """The image to trace with; only its shape matters.

    Open sizes are traced at two windows a side of the coarsest map, because the tracer takes a
    size of 1 for a special case.
    """
    if not dynamic:
        return torch.zeros(1, module.backbone.in_channels, *shape)
    windows = [getattr(part, 'window_size', None) for part in module.backbone.modules()]
    window = max([7, *(size for size in windows if isinstance(size, int))])
    height, width = (SMALLEST * (2 * window + extra) for extra in (1, 3))
    return torch.empty(2, module.backbone.in_channels, height, width)


def trace(module: nn.Module, shape: tuple[int, int], dynamic: bool) -> ExportedProgram:
    """The module as one graph, for one shape or for all."""
    module = copy.deepcopy(module)
    open_sizes(module)
    sizes = dict.fromkeys(OPEN_DIMS, Dim.DYNAMIC) if dynamic else None
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


def drop_layout_guards(program: ExportedProgram) -> None:
    """Let a graph of open sizes run at all of them.

    The tracer notes conditions on memory layout for maps with a side of 1, on which no result
    depends; the comparison that follows includes such maps. A size that has to be one number is
    another matter: there the model left the graph.
    """
    if fixed := [guard for guard in program._guards_code if re.search(r' == \d+$', guard)]:
        raise ValueError(
            'the model fixes a size that --dynamic wants open, so only one --shape can be '
            f'exported: {fixed[0]}'
        )
    program._guards_code = []
    for symbol, sizes in program._range_constraints.items():
        lower = min(sizes.lower, SMALLEST)
        program._range_constraints[symbol] = ValueRanges(lower, sizes.upper)


def save(program: ExportedProgram, path: Path, kind: str) -> None:
    """Write the graph as one file."""
    if kind == 'pt2':
        torch.export.save(program, path)
        return
    with quiet():
        converted = torch.onnx.export(program, dynamo=True, verbose=False)
    name_parts(converted.model.graph)
    converted.save(path, external_data=False)


def name_parts(graph: 'onnx_ir.Graph') -> None:  # noqa: F821  comes with onnxscript
    """Give inputs, outputs and open sizes of an ONNX graph the names that users look for."""
    (image,) = graph.inputs
    symbols = {
        image.shape[dim].value: name
        for dim, name in OPEN_DIMS.items()
        if not isinstance(image.shape[dim], int)
    }
    image.name = 'image'
    for value in (image, *(part for node in graph for part in node.outputs)):
        for dim, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value is not None:
                value.shape[dim] = re.sub(r's\d+', lambda hit: symbols[hit[0]], size.value)
    if len(graph.outputs) == 1 and graph.outputs[0].dtype.name == 'INT64':
        graph.outputs[0].name = 'class_map'
        return
    for index, output in enumerate(graph.outputs):
        output.name = f'map{index}'


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep remarks of the exporters to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(level)


def load(path: Path, kind: str) -> Callable[[Tensor], list[np.ndarray]]:
    """The exported file as a function of an image batch."""
    if kind == 'onnx':
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # for a fair race
        session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
        return lambda image: session.run(None, {'image': image.numpy()})
    with quiet():
        module = torch.export.load(path).module()

    def run(image: Tensor) -> list[np.ndarray]:
        with torch.no_grad():
            outputs = module(image)
        return [part.numpy() for part in ([outputs] if isinstance(outputs, Tensor) else outputs)]

    return run


def compare(
    module: nn.Module, run: Callable[[Tensor], list[np.ndarray]], shapes: list[tuple[int, int, int]]
) -> Iterator[tuple[tuple[int, int, int], float]]:
    """Largest difference to PyTorch at each batch, height and width.

    Of features relative to the largest value of a map; of a class map the share of pixels.
    """
    generator = torch.Generator().manual_seed(0)
    for batch, *side in shapes:
        pixels = (batch, module.backbone.in_channels, *side)
        image = torch.randint(256, pixels, generator=generator).float()
        if not module.normalize:
            image = (image - 127) / 60
        with torch.no_grad():
            expected = module(image)
        try:
            found = run(image)
        except Exception as error:  # runtimes raise all kinds
            raise ValueError(f'the file does not run at {tuple(image.shape)}: {error}') from error
        if isinstance(expected, Tensor):
            yield (batch, *side), float((found[0] != expected.numpy()).mean())
        else:
            yield (
                (batch, *side),
                max(
                    float(np.abs(part - wanted.numpy()).max() / wanted.abs().max())
                    for part, wanted in zip(found, expected, strict=True)
                ),
            )


def race(
    module: nn.Module,
    run: Callable[[Tensor], list[np.ndarray]],
    shape: tuple[int, int],
    rounds: int,
) -> tuple[float, float]:
    """Median seconds of the file and of PyTorch for one image, in turn, each warmed up before."""
    image = torch.rand(1, module.backbone.in_channels, *shape)
    seconds = [], []
    with torch.no_grad():
        for _ in range(rounds + 1):
            for times, call in zip(seconds, (run, module), strict=True):
                start = time.perf_counter()
                call(image)
                times.append(time.perf_counter() - start)
    return tuple(float(np.median(times[1:])) for times in seconds)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is being done, and in the end how long it took."""
    print(f'{what} ...', end=' ', flush=True)
    start = time.perf_counter()
    try:
        yield
    except BaseException:
        print('failed', flush=True)
        raise
    print(f'{time.perf_counter() - start:.1f} s', flush=True)
