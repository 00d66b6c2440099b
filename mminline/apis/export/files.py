"""Files of graphs: writing them as ONNX or for ``torch.export``, and running them."""

import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from .operators import OPSET, onnx_translations
from .tracing import OPEN_DIMS, quiet

FORMATS = ('onnx', 'pt2')
ONNX_PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
# An image batch, and for detectors a score threshold if not the file's own, to arrays.
Run = Callable[..., list[np.ndarray]]
THRESHOLD = 'score_threshold'


class ExportError(RuntimeError):
    """Raised if a model cannot be exported, or its file does not do what the model does."""


def missing_packages(kind: str) -> list[str]:
    """List what is not installed and needed to write and run files of a format."""
    wanted = ONNX_PACKAGES if kind == 'onnx' else ()
    return [name for name in wanted if importlib.util.find_spec(name) is None]


def write_graph(
    program: ExportedProgram,
    path: Path,
    kind: str,
    name_outputs: Callable[[int], list[str]],
    metadata: Mapping[str, str],
) -> None:
    """Write a graph as one file.

    Args:
        program: The graph.
        path: The file.
        kind: 'onnx' or 'pt2'.
        name_outputs: From the number of outputs to their names, for ONNX.
        metadata: What the file says about itself.
    """
    if kind == 'pt2':
        torch.export.save(program, path, extra_files=dict(metadata))
        return
    with quiet():
        converted = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            custom_translation_table=onnx_translations(),
        )
    name_tensors(converted.model.graph, name_outputs)
    converted.model.metadata_props.update(metadata)
    converted.save(path, external_data=False)


def name_tensors(
    graph: 'onnx_ir.Graph',  # noqa: F821  comes with onnxscript
    name_outputs: Callable[[int], list[str]],
) -> None:
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
    names = name_outputs(len(graph.outputs))
    for output, name in zip(graph.outputs, names, strict=True):
        output.name = name
    if 'dets' in names:
        for output in graph.outputs:
            output.shape[0] = 'detections'
        # An input with a default: runtimes take another value if they are given one.
        graph.inputs.append(graph.initializers[THRESHOLD])


def open_graph(path: Path, kind: str) -> Run:
    """Open an exported file as a function from an image batch to its outputs, on a CPU."""
    if kind == 'onnx':
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # no warning that score_threshold has a default
        options.intra_op_num_threads = torch.get_num_threads()  # as many as PyTorch, to compare
        session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])

        def run(image: Tensor, threshold: float | None = None) -> list[np.ndarray]:
            inputs = {'image': image.numpy()}
            if threshold is not None:
                inputs[THRESHOLD] = np.array([threshold], np.float32)
            return session.run(None, inputs)

        return run
    with quiet():
        module = torch.export.load(path).module()

    def run_module(image: Tensor) -> list[np.ndarray]:
        with torch.no_grad():
            outputs = module(image)
        return [part.numpy() for part in ([outputs] if isinstance(outputs, Tensor) else outputs)]

    return run_module
