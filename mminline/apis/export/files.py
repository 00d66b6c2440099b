"""Files of graphs: writing them as ONNX or for ``torch.export``, and running them."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from .tracing import OPEN_DIMS, quiet

FORMATS = ('onnx', 'pt2')
ONNX_PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
Run = Callable[[Tensor], list[np.ndarray]]


class ExportError(RuntimeError):
    """Raised if a model cannot be exported, or its file does not do what the model does."""


def missing_packages(kind: str) -> list[str]:
    """List what is not installed and needed to write and run files of a format."""
    wanted = ONNX_PACKAGES if kind == 'onnx' else ()
    return [name for name in wanted if importlib.util.find_spec(name) is None]


def write_graph(program: ExportedProgram, path: Path, kind: str) -> None:
    """Write a graph as one file."""
    if kind == 'pt2':
        torch.export.save(program, path)
        return
    with quiet():
        converted = torch.onnx.export(program, dynamo=True, verbose=False)
    name_tensors(converted.model.graph)
    converted.save(path, external_data=False)


def name_tensors(graph: 'onnx_ir.Graph') -> None:  # noqa: F821  comes with onnxscript
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


def open_graph(path: Path, kind: str) -> Run:
    """Open an exported file as a function from an image batch to its outputs, on a CPU."""
    if kind == 'onnx':
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # as many as PyTorch, to compare
        session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
        return lambda image: session.run(None, {'image': image.numpy()})
    with quiet():
        module = torch.export.load(path).module()

    def run(image: Tensor) -> list[np.ndarray]:
        with torch.no_grad():
            outputs = module(image)
        return [part.numpy() for part in ([outputs] if isinstance(outputs, Tensor) else outputs)]

    return run
