"""Export of a model to a file that is compared with PyTorch before anybody trusts it."""

import contextlib
import copy
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ..acceleration import accelerate
from . import tracing
from .checking import OPEN_SHAPES, BatchShape, check_detector_file, check_file, time_in_turn
from .detector import DetectorModel, set_thresholds
from .detector_checking import open_sizes_of
from .files import FORMATS, ExportError, Run, missing_packages, open_graph, write_graph
from .image_model import ImageModel, choose_part
from .metadata import describe
from .reference import DetectorReference
from .support import check_detector


class ExportedFile(NamedTuple):
    """A file that ``export_model`` wrote.

    Args:
        path: The file.
        model: The model on a CPU, with the thresholds of the file.
        module: What the graph was made of.
        reference: What it was compared with, a function of an image batch: the module, or for a
            detector the prediction of mmdet.
        run: The file as a function from an image batch to a list of arrays.
        differences: How far the file is from the model at each batch, height and width: relative
            to the largest value of a map of features, a share of the pixels of a class map (or
            relative to the largest score, if that is more), or a share of the detections.
    """

    path: Path
    model: nn.Module
    module: ImageModel | DetectorModel
    reference: Callable
    run: Run
    differences: dict[BatchShape, float]

    def time(self, shape: tuple[int, int], rounds: int) -> tuple[float, float]:
        """Return median seconds of the file and of PyTorch for one image, taking turns.

        PyTorch runs with the faster neck and heads that ``init_model`` gives to models.
        """
        reference = copy.deepcopy(self.reference)
        accelerate(getattr(reference, 'model', reference))
        return time_in_turn(reference, self.run, shape, rounds)


def export_model(
    model: nn.Module,
    path: str | Path,
    what: str | None = None,
    shape: tuple[int, int] = (512, 512),
    dynamic: bool | None = None,
    normalize: bool = True,
    format: str | None = None,
    verbose: bool = False,
    *,
    score_thr: float | None = None,
    nms_thr: float | None = None,
    paste: bool = False,
) -> ExportedFile:
    """Write a detector, a segmentor or their features as a file, run it and compare it.

    The graph takes ``image``, float32 of shape (B, 3, H, W): RGB values from 0 to 255. A segmentor
    gives ``class_map``, int64 of shape (B, H, W), and the ``scores`` of its head, float32 of shape
    (B, classes, H / stride, W / stride), before they are resized to the image. A detector takes one
    image and gives ``dets`` (N, 5), boxes in pixels and scores, ``labels`` (N,), and ``masks``
    (N, 28, 28) if it has them. Features are ``map0``, ``map1``, ..., fine to coarse.

    Args:
        model: Detector or segmentor, as ``init_model`` builds it.
        path: File to write.
        what: 'detector', 'segmentor', 'features' (backbone and neck) or 'backbone'; None for the
            whole model.
        shape: Height and width of the image.
        dynamic: Whether the graph is for any number of images (a detector: one) of any size; None
            for detectors only.
        normalize: Whether mean and standard deviation of the config belong to the graph.
        format: 'onnx' or 'pt2'; None for the suffix of the path.
        verbose: Whether to print each step, and how the file compares with the model.
        score_thr: Least score of a detection, if not the config's.
        nms_thr: Overlap above which the worse of two detections is dropped, if not the config's.
        paste: Whether masks are (N, H, W) and boolean, in the image instead of in their boxes.

    Raises:
        ExportError: If a layer cannot be exported, or the file differs from the model: by more
            than a thousandth of the largest value or of the pixels, or in more than a hundredth
            of the detections. There is no file then.
    """
    path = Path(path)
    kind = format or path.suffix.removeprefix('.')
    check_request(path, kind, shape)
    what = choose_part(model, what)
    if what == 'detector' and kind != 'onnx':
        raise ValueError(
            f'a detector has to be exported as onnx, got {kind}: PyTorch has no operations of its '
            'own for boxes, so the file would not run without mminline'
        )
    model = copy.deepcopy(model).cpu().eval()
    if what == 'detector':
        check_detector(model)
        set_thresholds(model, score_thr, nms_thr)
        module = DetectorModel(model, normalize, paste)
    else:
        check_options(what, score_thr=score_thr, nms_thr=nms_thr, paste=paste or None)
        module = ImageModel(model, what, normalize)
    dynamic = what == 'detector' if dynamic is None else dynamic
    # Its own for each process that exports to this path; the suffix chooses the reader.
    unchecked = path.with_name(f'.{secrets.token_hex(8)}.part.{path.name}')
    try:
        metadata = describe(model, module, what, shape, dynamic)
        _write(module, metadata, unchecked, path, kind, shape, dynamic, verbose)
        run = open_graph(unchecked, kind)
        if what == 'detector':
            reference = DetectorReference(model)
            sizes = list(dict.fromkeys([tuple(shape), *(open_sizes_of(module) if dynamic else ())]))
            differences = check_detector_file(path, module, run, reference, sizes, verbose)
        else:
            reference = module
            shapes = [(1, *shape), *(OPEN_SHAPES if dynamic else ())]
            differences = check_file(path, module, run, shapes, verbose)
        unchecked.replace(path)
    finally:
        unchecked.unlink(missing_ok=True)
    return ExportedFile(path, model, module, reference, run, differences)


def check_options(what: str, **options: Any) -> None:
    """Raise if options of detectors are given for something else."""
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(f'{", ".join(given)} is for detectors, got what={what}')


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
    module: ImageModel | DetectorModel,
    metadata: dict[str, str],
    file: Path,
    path: Path,
    kind: str,
    shape: tuple[int, int],
    dynamic: bool,
    verbose: bool,
) -> None:
    try:
        with _step('tracing', verbose):
            program = tracing.trace(module, tuple(shape), dynamic)
        with _step(f'writing {path}', verbose):
            write_graph(program, file, kind, module.name_outputs, metadata)
    except Exception as error:  # tracer and converters raise all kinds
        cause = error
        while cause.__cause__:
            cause = cause.__cause__
        raise ExportError(f'{path} was not written, {type(cause).__name__}: {cause}') from error
    if verbose:
        print(f'{path}: {file.stat().st_size / 1e6:.1f} MB')


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
