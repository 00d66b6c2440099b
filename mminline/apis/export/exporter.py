"""Export of a model to a file that is compared with PyTorch before anybody trusts it."""

import contextlib
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import nn
from torch.export import ExportedProgram

from . import tracing
from .checking import LARGEST_DIFFERENCE, OPEN_SHAPES, BatchShape, differences, time_in_turn
from .files import FORMATS, ExportError, Run, missing_packages, open_graph, write_graph
from .image_model import ImageModel, choose_part


class ExportedFile(NamedTuple):
    """A file that ``export_model`` wrote.

    Args:
        path: The file.
        module: The model that it was made of, on a CPU.
        run: The file as a function from an image batch to a list of arrays.
        differences: How far the file is from the module at each batch, height and width: relative
            to the largest value of a map of features, or a share of the pixels of a class map.
    """

    path: Path
    module: ImageModel
    run: Run
    differences: dict[BatchShape, float]

    def time(self, shape: tuple[int, int], rounds: int) -> tuple[float, float]:
        """Return median seconds of the file and of PyTorch for one image, taking turns."""
        return time_in_turn(self.module, self.run, shape, rounds)


def export_model(
    model: nn.Module,
    path: str | Path,
    what: str | None = None,
    shape: tuple[int, int] = (512, 512),
    dynamic: bool = False,
    normalize: bool = True,
    format: str | None = None,
    verbose: bool = False,
) -> ExportedFile:
    """Write a segmentor, or features of a detector, as an ONNX or ``torch.export`` file; check it.

    The graph takes ``image``, float32 of shape (B, 3, H, W): pixel values from 0 to 255 in the
    channel order of the config's mean and std. It gives ``class_map``, int64 of shape (B, H, W), or
    features ``map0``, ``map1``, ..., fine to coarse.

    Args:
        model: Detector or segmentor, as ``init_model`` builds it.
        path: File to write.
        what: 'backbone', 'features' (backbone and neck) or 'segmentor'; None for 'segmentor', or
            for 'features' of a detector.
        shape: Height and width of the image.
        dynamic: Whether the graph is for any number of images of any size.
        normalize: Whether mean and standard deviation of the config belong to the graph.
        format: 'onnx' or 'pt2'; None for the suffix of the path.
        verbose: Whether to print each step, and how the file compares with the model.

    Raises:
        ExportError: If a layer cannot be exported, or the file differs from the model by more than
            a thousandth, of the largest value or of the pixels.
    """
    path = Path(path)
    kind = format or path.suffix.removeprefix('.')
    check_request(path, kind, shape)
    module = ImageModel(model, choose_part(model, what), normalize)
    module = copy.deepcopy(module).cpu().eval()
    _write(module, path, kind, shape, dynamic, verbose)
    run = open_graph(path, kind)
    shapes = [(1, *shape), *(OPEN_SHAPES if dynamic else ())]
    return ExportedFile(path, module, run, _check(path, module, run, shapes, verbose))


def check_request(path: Path, kind: str, shape: tuple[int, int]) -> None:
    """Raise if a file of that format cannot be written there, or not for that shape."""
    if kind not in FORMATS:
        raise ValueError(f'format has to be one of {", ".join(FORMATS)}, got {kind!r}')
    if min(shape) < tracing.SMALLEST:
        raise ValueError(f'shape has to be at least 32 32, got {shape[0]} {shape[1]}')
    if not path.parent.is_dir():
        raise ValueError(f'the file has to be in a folder that exists, got {path}')
    if missing := missing_packages(kind):
        raise ExportError(f'ONNX needs {", ".join(missing)}: pip install "mminline[export]".')


def _write(
    module: ImageModel,
    path: Path,
    kind: str,
    shape: tuple[int, int],
    dynamic: bool,
    verbose: bool,
) -> None:
    try:
        with _step('tracing', verbose):
            program: ExportedProgram = tracing.trace(module, tuple(shape), dynamic)
        with _step(f'writing {path}', verbose):
            write_graph(program, path, kind)
    except Exception as error:  # tracer and converters raise all kinds
        cause = error
        while cause.__cause__:
            cause = cause.__cause__
        raise ExportError(f'{path} was not written, {type(cause).__name__}: {cause}') from error
    if verbose:
        print(f'{path}: {path.stat().st_size / 1e6:.1f} MB')


def _check(
    path: Path, module: ImageModel, run: Run, shapes: list[BatchShape], verbose: bool
) -> dict[BatchShape, float]:
    """Compare the file with the module at all shapes; raise if it differs."""
    if verbose:
        unit = 'largest difference / largest value' if module.head is None else 'share of pixels'
        print(f'{"batch":>5}  {"height x width":>14}  {unit}')
    found = {}
    for (batch, height, width), difference in differences(module, run, shapes):
        found[batch, height, width] = difference
        if verbose:
            print(f'{batch:>5}  {height:>6} x {width:<5}  {difference:.1e}', flush=True)
    largest = np.max(list(found.values()))
    if not largest <= LARGEST_DIFFERENCE:  # nor a NaN
        raise ExportError(
            f'{path} does not do what the model does: the largest difference is {largest:.1e}, at '
            f'most {LARGEST_DIFFERENCE:.0e} is expected'
        )
    return found


@contextlib.contextmanager
def _step(what: str, verbose: bool) -> Iterator[None]:
    """Say what is being done, and in the end how long it took."""
    if not verbose:
        yield
        return
    print(f'{what} ...', end=' ', flush=True)
    start = time.perf_counter()
    try:
        yield
    except BaseException:
        print('failed', flush=True)
        raise
    print(f'{time.perf_counter() - start:.1f} s', flush=True)
